"""``python -m ringfence`` and the ``ringfence`` program: signals are heard before anything heavy is imported."""

from ringfence.beginning import (
    keep_freed_memory,
    open_closed_streams,
    print_any_text,
    refuse_lost_folder,
    sleep_while_waiting,
)
from ringfence.bytecode import keep_bytecode
from ringfence.signals import leave, leave_at_once_when_stopped
from ringfence.sources import have_run, read_sources


def main() -> None:
    """Entry point of the ``ringfence`` program."""
    leave_at_once_when_stopped()
    open_closed_streams()
    print_any_text()
    refuse_lost_folder()
    keep_bytecode()
    sleep_while_waiting()
    keep_freed_memory()
    read_sources()
    from ringfence.cli import main as command_line

    try:
        command_line()
    except SystemExit as over:
        if not have_run() and (over.code is None or isinstance(over.code, int)):
            leave(over.code or 0)
        raise
    if not have_run():  # whose files may still be open: Python closes them
        leave(0)


if __name__ == "__main__":
    main()
