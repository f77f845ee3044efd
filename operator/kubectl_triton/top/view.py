"""The terminal of `kubectl triton top`: draws what `fleet` and `detail` return."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import ClassVar, Protocol

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from kubectl_triton.cluster import UnreachableError
from triton_repository_check.text import one_line

from . import detail, fleet
from .detail import Reading
from .fleet import Cell
from .source import Overview

_STYLE = {"good": "green", "bad": "bold red", "warn": "yellow", "plain": "", "dim": "dim"}
_PAUSE_FACTOR = 4.0
"""The pause after a reading is at least this many times as long as the reading."""


class Reader(Protocol):
    """Where the data comes from. Both raise UnreachableError."""

    def overview(self) -> Overview: ...
    def reading(self, key: str) -> Reading: ...


def styled(cell: Cell) -> Text:
    """Returns the cell for Textual. As a Text, no part of it is read as markup."""
    return Text(cell.text, style=_STYLE[cell.tone])


class Live(Screen[None]):
    """A screen that reads again and again, while it is the visible one.

    A daemon thread reads, so that the program ends at once also while a server doesn't answer.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self._ended, self._woken = threading.Event(), threading.Event()

    def on_mount(self) -> None:
        threading.Thread(target=self._poll, daemon=True).start()

    def on_unmount(self) -> None:
        self._ended.set()
        self._woken.set()

    def on_screen_resume(self) -> None:
        self._woken.set()

    def _poll(self) -> None:
        while not self._ended.is_set():
            self._woken.clear()
            start = time.monotonic()
            if self.is_active:
                update = self._read_once()
                with contextlib.suppress(RuntimeError):  # the program has ended in the meantime
                    self.call_later(update)
            self._woken.wait(max(self.seconds, _PAUSE_FACTOR * (time.monotonic() - start)))

    def _read_once(self) -> Callable[[], None]:
        try:
            return self.read()
        except UnreachableError as error:
            text = one_line(f"can't be read: {error}")
            return lambda: self.note(text)
        except Exception as error:  # a bug: the event loop raises it and ends the program
            bug = error

            def fail() -> None:
                raise bug

            return fail

    def read(self) -> Callable[[], None]:
        """Reads in the thread. Returns what shows the result in the event loop."""
        raise NotImplementedError

    def note(self, text: str) -> None:
        self.query_one("#note", Static).update(Text(text))


class Table(DataTable[Text]):
    """A table that shows its key in the footer."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "Open")]


class Models(Live):
    """The table of all TritonModels."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "move(1)", "Down", show=False),
        Binding("k", "move(-1)", "Up", show=False),
        Binding("s", "sort", "Sort"),
        Binding("slash", "filter", "Filter"),
        Binding("escape", "clear", "All", show=False),
    ]

    def __init__(self, reader: Reader, seconds: float) -> None:
        super().__init__(seconds)
        self.reader, self.overview, self.sort, self.words = reader, Overview([]), 0, ""

    def compose(self) -> ComposeResult:
        yield Static("reading …", id="note", markup=False)
        # The cells keep their colours in the row of the cursor, so that a firing alert is still red.
        yield Table(cursor_type="row", zebra_stripes=True, cursor_foreground_priority="renderable")
        yield Input(placeholder="part of a name", id="filter")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(Input).display = False
        table = self.query_one(Table)
        for column in fleet.COLUMNS:
            table.add_column(f"{column.title}  ", key=column.title)
        table.focus()
        super().on_mount()

    def read(self) -> Callable[[], None]:
        overview = self.reader.overview()
        return lambda: self.take(overview)

    def take(self, overview: Overview) -> None:
        self.overview = overview
        self.draw()

    def draw(self) -> None:
        table = self.query_one(Table)
        selection = self.chosen()
        rows = fleet.arranged(self.overview.rows, self.sort, self.words)
        top = table.scroll_y
        for place, column in enumerate(table.ordered_columns):
            column.label = Text(fleet.COLUMNS[place].title + (" ▼" if place == self.sort else "  "))
        table.clear()
        for row in rows:
            table.add_row(*map(styled, fleet.cells(row)), key=row.key)
        keys = [row.key for row in rows]
        if keys:
            table.move_cursor(row=keys.index(selection) if selection in keys else 0, animate=False)
            table.scroll_to(y=top, animate=False)
        notes = {"filter": self.words, "note": "; ".join(self.overview.notes)}
        self.note(fleet.summary(self.overview.rows, len(rows), notes))

    def chosen(self) -> str:
        """Returns the namespace/name in the row of the cursor; "" without rows."""
        table = self.query_one(Table)
        if not table.row_count:
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value or "")

    def action_move(self, by: int) -> None:
        table = self.query_one(Table)
        table.move_cursor(row=table.cursor_coordinate.row + by)

    def on_data_table_row_selected(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        if key := self.chosen():
            self.app.push_screen(Model(self.reader, key, self.seconds))

    def action_sort(self) -> None:
        self.sort = (self.sort + 1) % len(fleet.COLUMNS)
        self.draw()

    def action_filter(self) -> None:
        field = self.query_one(Input)
        field.display = True
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.words = one_line(event.value)
        self.draw()

    def on_input_submitted(self) -> None:
        self._close_filter()

    def action_clear(self) -> None:
        self.query_one(Input).value = ""
        self._close_filter()

    def _close_filter(self) -> None:
        self.query_one(Input).display = False
        self.query_one(Table).focus()


class Model(Live):
    """One TritonModel."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("j", "scroll(1)", "Down", show=False),
        Binding("k", "scroll(-1)", "Up", show=False),
    ]

    def __init__(self, reader: Reader, key: str, seconds: float) -> None:
        super().__init__(seconds)
        self.reader, self.key = reader, key

    def compose(self) -> ComposeResult:
        yield Static(Text(f"{self.key}: reading …"), id="note", markup=False)
        with VerticalScroll():
            yield Static("", id="body", markup=False)
        yield Footer()

    def read(self) -> Callable[[], None]:
        reading = self.reader.reading(self.key)
        return lambda: self.take(reading)

    def take(self, reading: Reading) -> None:
        self.note(one_line(" · ".join([self.key, *reading.notes])))
        self.query_one("#body", Static).update(as_text(detail.sections(reading, datetime.now(UTC))))

    def action_scroll(self, by: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)

    def action_back(self) -> None:
        if len(self.app.screen_stack) > 2:
            self.app.pop_screen()
        else:
            self.app.exit()


def as_text(sections: Sequence[detail.Section]) -> Text:
    """Returns the sections as tables with aligned columns. The last column isn't cut."""
    out = Text()
    for section in sections:
        out.append(f"{section.title}\n", style="bold")
        lines = [[Cell(title, "dim") for title in section.head], *section.rows]
        widths = [max(Text(line[i].text).cell_len for line in lines) for i in range(len(section.head) - 1)]
        for line in lines:
            for cell, width in zip(line, [*widths, 0], strict=True):
                text = styled(cell)
                out.append("  ").append_text(text).append(" " * (width - text.cell_len if width else 0))
            out.append("\n")
        out.append(f"  and {section.left_out} more\n" if section.left_out else "").append("\n")
    return out


class Top(App[None]):
    """The program. `key`: the TritonModel to begin with; "" shows all. `seconds`: between two readings."""

    CSS = """
    #note { padding: 0 1; height: auto; max-height: 3; }
    #filter { dock: bottom; }
    DataTable { height: 1fr; }
    DataTable > .datatable--cursor, DataTable:focus > .datatable--cursor { background: $surface-lighten-3; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "quit", "Quit")]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, reader: Reader, key: str, seconds: float) -> None:
        super().__init__()
        self.reader, self.key, self.seconds = reader, key, seconds

    def on_mount(self) -> None:
        first = Model(self.reader, self.key, self.seconds) if self.key else Models(self.reader, self.seconds)
        self.push_screen(first)
