"""Python programs in processes of their own that need not import third-party modules again.

Importing the modules that vLLM needs (torch, transformers, and five thousand more) takes eight
seconds of a core, and the tests start about fifty such processes. Therefore a server forks them. It
has imported all these modules, but nothing of vLLM or kvoxide. :mod:`.client` asks the server,
:mod:`.server` is the server, :mod:`.program` becomes the requested program, and :mod:`.modules`
lists the imported modules.

Apart from these modules, such a process equals a new one. Its environment, path, folder, arguments
and files are the client's. It ends as Python ends, with its status, threads and exit functions. The
collector never looks at the objects of these modules: ``gc.unfreeze`` does nothing. A
third-party module may read variables when it is imported. These are the same for all processes of a
server; clients with different variables get different servers.

A program that must not find torch imported needs :mod:`subprocess`. A program that may even find
vLLM imported names modules in the variable :data:`ALSO`, and their folders in :data:`ALSO_FROM`.
"""

from .client import Process, run, start
from .folder import folder_for_servers
from .modules import ALSO, ALSO_FROM

__all__ = ["ALSO", "ALSO_FROM", "Process", "folder_for_servers", "run", "start"]
