"""Options of ``ringfence sweep`` by which work goes to a machine without network, and comes back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli.console import remark
from ringfence.cli.help import SEVERAL
from ringfence.errors import ArgumentError

if TYPE_CHECKING:
    from ringfence.sweep import Job, Sweep

PANEL = "A machine without network"


@dataclass(frozen=True)
class TravelOptions:
    """What is brought along before, and what is packed afterwards."""

    pack: Annotated[
        Path | None,
        typer.Option(
            help="Pack what jobs made into archives there, every minute and at the end.", rich_help_panel=PANEL
        ),
    ] = None
    pack_mib: Annotated[float, typer.Option(help="Size of an archive at most, in MiB.", rich_help_panel=PANEL)] = 14.0
    pack_files: Annotated[
        int | None, typer.Option(min=1, help="Number of archives at most.", rich_help_panel=PANEL)
    ] = None
    pack_total: Annotated[
        float | None, typer.Option(help="Size of all archives at most, in MiB.", rich_help_panel=PANEL)
    ] = None
    pack_pictures: Annotated[
        bool, typer.Option(help="Whether pictures of inputs are packed with their runs.", rich_help_panel=PANEL)
    ] = True
    unpack: Annotated[
        list[Path] | None,
        typer.Option(help="Before, unpack the archives of this folder, or what --carry made.", rich_help_panel=PANEL),
    ] = None
    carry: Annotated[
        Path | None,
        typer.Option(help="Run nothing; gather there all that the jobs need.", rich_help_panel=PANEL),
    ] = None
    carry_mib: Annotated[
        float, typer.Option(help="Size of a folder to carry at most, in MiB.", rich_help_panel=PANEL)
    ] = 50.0
    libraries: Annotated[
        str | None,
        typer.Option(
            help="Carry these, too: installed libraries or wheels, by commas.",
            metavar=f"TEXT{SEVERAL}",
            rich_help_panel=PANEL,
        ),
    ] = None
    kept: Annotated[
        list[Path] | None,
        typer.Option(help="Jobs are done whose runs lie here, or whose weights in a zoo.", rich_help_panel=PANEL),
    ] = None

    def check(self) -> None:
        """Refuse sizes that nothing fits into."""
        for name in ("pack_mib", "pack_total", "carry_mib"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ArgumentError(name, "must be a size above 0, in MiB", value, "Use e.g. 14.")

    def zoos(self) -> list[Path]:
        """Zoos that were carried here."""
        return [folder / "zoo" for folder in self.unpack or () if (folder / "zoo").is_dir()]

    def planned(self, sweeps: Sequence[Sweep], held: ExitStack) -> list[Sweep]:
        """The sweeps as they would be with what came from elsewhere: copies, for as long as they are held."""
        if not (self.unpack or self.kept):
            return list(sweeps)
        folder = Path(held.enter_context(TemporaryDirectory(prefix="ringfence-plan-")))
        copies = [sweep.outlined(folder / sweep.work.name) for sweep in sweeps]
        self.bring([job for sweep in copies for job in sweep.jobs])
        self.adopt(copies, [*(zoo for sweep in copies for zoo in sweep.work.zoos()), *self.zoos()])
        return copies

    def make_room(self, data: Path | None) -> None:
        """Make the folder that carried data goes to."""
        if data is not None and any((folder / "data").is_dir() for folder in self.unpack or ()):
            from ringfence.store.atomic import writing_errors

            with writing_errors(data):
                data.mkdir(parents=True, exist_ok=True)

    def bring(self, every: Sequence[Job]) -> None:
        """Unpack what jobs made elsewhere."""
        from ringfence.sweep import unpack

        for folder in self.unpack or ():
            carried = any((folder / name).is_dir() for name in ("lib", "zoo", "data"))
            if not carried or any(folder.glob("*.tgz")):
                for told in unpack(folder, every):
                    remark(f"not unpacked from {folder}: {told}")

    def bring_data(self, data: Path | None) -> None:
        """Unpack the data that was carried."""
        from ringfence.sweep.carry import unpack_data

        for folder in self.unpack or ():
            if (folder / "data").is_dir():
                if data is None:
                    raise ArgumentError("data", "must be the folder for the data that was carried", "none", "Name it.")
                for name in unpack_data(folder, data):
                    remark(f"unpacked: {data / name}")

    def adopt(self, sweeps: Sequence[Sweep], zoos: Sequence[Path]) -> None:
        """Take for done what is kept, and what came along with a carried zoo."""
        places = zoos if self.kept else self.zoos()
        for sweep in sweeps if places else ():
            if found := sweep.work.adopt(sweep.jobs, self.kept or (), places):
                remark(f"done before: {len(found)} jobs of {sweep.file}")

    def gather(self, chosen: Sequence[Job], every: Sequence[Job], data: Path | None, zoos: Sequence[Path]) -> None:
        """Make the folders to carry, and tell their sizes."""
        from ringfence.sweep.carry import make_carry

        assert self.carry is not None
        libraries = [one.strip() for one in (self.libraries or "").split(",") if one.strip()]
        for part in make_carry(chosen, every, data, zoos, libraries, self.carry, self.carry_mib):
            remark(f"carry: {part.path} ({part.mib:.1f} MiB)")
            for name, size in part.holds:
                remark(f"  {name} {size:.1f} MiB")

    @contextmanager
    def packed(self, chosen: Sequence[Job], every: Sequence[Job]) -> Iterator[None]:
        """Pack meanwhile and afterwards, whatever ends what is done meanwhile."""
        from ringfence.sweep import Limits, Packing

        if self.pack is None:
            yield
            return
        limits = Limits(self.pack_mib, self.pack_files, self.pack_total)
        packing = Packing(chosen, every, self.pack, limits, pictures=self.pack_pictures)
        packing.check()
        try:
            with packing.meanwhile():
                yield
        finally:
            made = packing.pack()
            for archive in made.archives:
                remark(f"packed: {archive} ({archive.stat().st_size / 2**20:.1f} MiB)")
            for key in made.unread:
                remark(f"not packed, as its files cannot be read: {key}")
            for key in made.left_out:
                remark(f"not packed, for want of room: {key}")
            if made.left_out and self.pack_pictures:
                remark("--no-pack-pictures leaves out pictures of inputs, which take most of it where inputs are many")
