"""Predictions with certificates over HTTP: a certification answers requests while they come.

The way of a request: the loop passes it through ``Guard`` (guards.py: token, rate) to a route (app.py), which reads its
parameters and its input and calls ``Model.ask`` (model.py). In one process (``--together``) the model is a ``Served``:
the request waits in line until the thread of a device takes it, draws for it in batches that requests share
(sharing.py, through the driver of the library), and sets the record as its answer once the network was seen unchanged;
that wakes the loop (wakeup.py), and the route replies with the ``Answer`` made of it (schemas.py). In two processes
(``--apart``) what the loop asks is a ``RemoteModel`` (apart.py), which sends the request over a ``Channel`` to the
``Host`` of the ``Served`` model, and gets the same record back. Jobs (jobs.py) ask models in the same way, from a
thread of their own.

Locks, all but one held for moments: ``Waiting`` has one for the line of a model, ``Jobs`` one for its listeners and one
for the database, also while the disk writes, which no thread of a model takes. Only the first is held while another is
taken: under it requests are told that they get no answer, of which the listeners of a job hear.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ringfence.errors import ArgumentError


@contextmanager
def extra() -> Iterator[None]:
    """Around imports of the ``serve`` extra: says how to install it where it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        rule, remedy = f"needs {str(error.name).partition('.')[0]}", "Install it: pip install 'ringfence[serve]'."
        raise ArgumentError("serve", rule, "not installed", remedy) from error
