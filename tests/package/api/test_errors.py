"""The classes of errors; what raises them is in tests/bad_input.md."""

import kvoxide
from kvoxide import (
    BlockError,
    BlockHashError,
    ConfigError,
    DuplicateRequestError,
    KvoxideError,
    RequestError,
    UnknownRequestError,
    UnsupportedGroupError,
)


def test_the_classes_of_errors() -> None:
    for error in (
        ConfigError,
        RequestError,
        BlockHashError,
        BlockError,
        kvoxide.TraceError,
        kvoxide.PickleError,
    ):
        assert issubclass(error, KvoxideError)
        assert issubclass(error, ValueError)
    assert issubclass(UnsupportedGroupError, ConfigError)
    assert issubclass(UnknownRequestError, RequestError)
    assert issubclass(UnknownRequestError, KeyError)
    assert issubclass(DuplicateRequestError, RequestError)
    assert issubclass(kvoxide.InternalError, KvoxideError)
    assert issubclass(kvoxide.InternalError, AssertionError)
