"""Python programs in processes of their own that need not import the third parties again.

Importing what vLLM stands on (torch, transformers, and five thousand modules more) takes eight
seconds of a core; the tests start some fifty such processes. A server that has imported all of it,
but nothing of vLLM or kvoxide, forks them instead: :mod:`.client` asks it, :mod:`.server` is it,
:mod:`.program` becomes the program that was asked for, :mod:`.modules` says what is imported.

What a process finds is what a new one finds, but for the third parties: its environment, path,
folder, arguments and files are the asker's, and it ends as Python ends, with its status, threads
and exit functions. Variables that a third party may read when it is imported are the same for all
processes of a server; where they differ, so does the server. What must not find torch imported is
a job for :mod:`subprocess`; what may find even vLLM imported names modules in the variable
:data:`ALSO`, and in :data:`ALSO_FROM` where they are.
"""

from .client import Process, run, start
from .folder import folder_for_servers
from .modules import ALSO, ALSO_FROM

__all__ = ["ALSO", "ALSO_FROM", "Process", "folder_for_servers", "run", "start"]
