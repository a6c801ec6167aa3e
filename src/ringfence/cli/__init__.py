"""The command line: parse, call, print. Nothing heavy is imported before a command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from ringfence.cli.aces import aces_app
from ringfence.cli.attack import AttackCommand, attack_command
from ringfence.cli.certify import certify_command, predict_command
from ringfence.cli.compare import compare_command
from ringfence.cli.console import friendly, quiet_when_unread, told_when_full
from ringfence.cli.derived import PredictCommand, ProcedureCommand
from ringfence.cli.exchange import export_app, import_app
from ringfence.cli.help import HelpfulCommand
from ringfence.cli.holdout import rank_command, weights_command
from ringfence.cli.info import info_command
from ringfence.cli.metrics import gate_command, metrics_command
from ringfence.cli.plan import plan_command
from ringfence.cli.report import plot_command, report_command
from ringfence.cli.serve import keygen_command, seal_command, serve_command
from ringfence.cli.simplex import simplex_app
from ringfence.cli.sweep import sweep_command
from ringfence.cli.train import TrainCommand, train_command
from ringfence.cli.variance import conditions_command, variance_command
from ringfence.cli.verify import verify_command
from ringfence.cli.zoo import zoo_app
from ringfence.extending import load_plugins
from ringfence.signals import stopped_cleanly
from ringfence.version import __version__

app = typer.Typer(
    context_settings={"help_option_names": ["--help", "-h"]},
    name="ringfence",
    help="Certified robustness for PyTorch: every prediction with a proof that no smaller perturbation changes it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"ringfence {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
    plugin: Annotated[
        list[str] | None,
        typer.Option(help="A file.py or module that registers parts of your own; also $RINGFENCE_PLUGINS, by commas."),
    ] = None,
) -> None:
    """Options before the command."""
    with friendly():
        load_plugins(plugin or ())


app.command("certify", cls=ProcedureCommand)(certify_command)
app.command("predict", cls=PredictCommand)(predict_command)
app.command("metrics", cls=HelpfulCommand)(metrics_command)
app.command("compare", cls=HelpfulCommand)(compare_command)
app.command("report", cls=HelpfulCommand)(report_command)
app.command("plot", cls=HelpfulCommand)(plot_command)
app.command("plan", cls=ProcedureCommand)(plan_command)
app.command("train", cls=TrainCommand)(train_command)
app.command("sweep", cls=HelpfulCommand)(sweep_command)
app.command("attack", cls=AttackCommand)(attack_command)
app.command("rank", cls=HelpfulCommand)(rank_command)
app.command("variance", cls=HelpfulCommand)(variance_command)
app.command("weights", cls=HelpfulCommand)(weights_command)
app.command("conditions", cls=HelpfulCommand)(conditions_command)
app.command("verify", cls=HelpfulCommand)(verify_command)
app.command("gate", cls=HelpfulCommand)(gate_command)
app.command("serve", cls=HelpfulCommand)(serve_command)
app.command("keygen", cls=HelpfulCommand)(keygen_command)
app.command("seal", cls=HelpfulCommand)(seal_command)
app.command("info", cls=HelpfulCommand)(info_command)
app.add_typer(aces_app, name="aces")
app.add_typer(simplex_app, name="simplex")
app.add_typer(zoo_app, name="zoo")
app.add_typer(import_app, name="import")
app.add_typer(export_app, name="export")


def main() -> None:
    """Entry point of the ``ringfence`` program."""
    with stopped_cleanly(), told_when_full(), quiet_when_unread():
        app()
