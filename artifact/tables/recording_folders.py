"""Folders of tables with one recording each."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from artifact.errors import InputError
from artifact.tables.labelled import MOST_VALUES, Contents, RecordingLayout
from artifact.tables.reading import EXTENSIONS, KNOWN, Field, is_table, missing
from artifact.tables.recording_tables import find_roles, read_steps, sheet_of, stem_of, texts_of
from artifact.tables.series import Sheet, read_sheet
from artifact.tables.times import text_of

LABELS = "labels"
"""Name of the table of the labels in a folder, without its extension."""
FILE_COLUMNS = ("file", "id")
"""Columns of the files in a table of labels."""
Texts = tuple[str, str, str]
"""Label, group and split of a recording."""


def read_folder(folder: Path, layout: RecordingLayout) -> Contents:
    """Read the recording of each table in a folder and its subfolders.

    The label of a file is in the table of labels; without such a table, it is the name of the subfolder or in the
    file.

    Raises: InputError naming the file without the channels of the first one, without a label or without times, or the
        row of a label without a file.
    """
    table = next((path for end in EXTENSIONS if (path := folder / f"{LABELS}{end}").exists()), None)
    files = [path for path in _files(folder) if table is None or not path.samefile(table)]
    tables = {path.relative_to(folder).as_posix(): path for path in files if is_table(path.name)}
    if not tables:
        raise InputError(f"{folder}: expected files that end in {KNOWN}, each with a recording")
    if table is None and layout.group_column and layout.needs_groups:
        raise InputError(f"{folder}: a folder without a table {LABELS}.csv has no column {layout.group_column!r}")
    labels = None if table is None else _labels(table, tables, layout)
    contents = list[Contents]()
    total = 0
    for name, path in tables.items():
        found = _recording(name, path, layout, is_labelled=labels is not None or "/" in name)
        if labels is not None:
            found = _with_texts(found, labels.get(name, ("", "", "")))
        elif "/" in name:
            found = _with_texts(found, (name.partition("/")[0], "", ""))
        contents.append(_like(contents[0], found) if contents else found)
        if (total := total + found.recordings[0].values.size) > MOST_VALUES:
            raise InputError(f"{path}: more than {MOST_VALUES:,} values in all files")
    others = [path for path in files if not is_table(path.name)]
    note = f"left out what is no table: {len(others)} of {len(files)} files, the first {others[0]}" if others else ""
    first = contents[0]
    return Contents(
        first.channels,
        [one.recordings[0] for one in contents],
        None if first.times is None else [times for one in contents for times in one.times or ()],
        tuple(dict.fromkeys(filter(None, [note, *(note for one in contents for note in one.notes)]))),
        first.counts_steps,
    )


def _files(folder: Path) -> Iterator[Path]:
    """Files of a folder and its subfolders that are not hidden, in the order of their names."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def _labels(table: Path, tables: dict[str, Path], layout: RecordingLayout) -> dict[str, Texts]:
    """Label, group and split of each file that a table names, with or without its extension.

    Raises: InputError naming the row of an unknown file.
    """
    sheet = read_sheet(table, layout.encoding, {*FILE_COLUMNS, layout.usual_id, layout.label_column})
    column = _file_column(sheet, layout)
    for name, option, is_needed in (
        (layout.label_column, "--label-column", layout.needs_labels),
        (layout.group_column, "--group-column", layout.needs_groups),
    ):
        if is_needed and name and name not in sheet.columns:
            raise InputError(f"{sheet.place}: {missing(Field(name, option=option), sheet.columns)}")
    columns = [layout.label_column, layout.group_column, layout.split_column]
    texts = zip(*(texts_of(sheet, name if name in sheet.columns else "") for name in columns), strict=True)
    names = {**{_bare(name): name for name in tables}, **{name: name for name in tables}}
    labels = dict[str, Texts]()
    for cell, line, found in zip(sheet.column(column), sheet.lines, texts, strict=True):
        file = names.get(text_of(cell))
        if file is None:
            raise InputError(f"{sheet.name}:{line}: the folder has no file {text_of(cell)!r}")
        if file in labels:
            raise InputError(f"{sheet.name}:{line}: the file {file!r} is in an earlier row, too")
        labels[file] = found
    return labels


def _file_column(sheet: Sheet, layout: RecordingLayout) -> str:
    """The column of the files. Raises: InputError."""
    wanted = [layout.id_column] if layout.id_column else [layout.usual_id or FILE_COLUMNS[0], *FILE_COLUMNS]
    for name in wanted:
        if name in sheet.columns:
            return name
    raise InputError(f"{sheet.place}: {missing(Field(wanted[0], option='--id-column'), sheet.columns)}")


def _bare(name: str) -> str:
    """Name of a file in a folder without its extension."""
    return (Path(name).parent / stem_of(name)).as_posix()


def _recording(name: str, path: Path, layout: RecordingLayout, *, is_labelled: bool) -> Contents:
    """The recording of a file. Raises: InputError."""
    layout = replace(layout, id_column="", usual_id="", group_column="", split_column="")
    sheet = sheet_of(path, layout)
    roles = find_roles(sheet, layout)
    if layout.needs_labels and not roles.label and not is_labelled:
        raise InputError(
            f"{path}: the file has no label; expected a table {LABELS}.csv of files and labels in the folder, a "
            f"subfolder per label, or a column {layout.label_column!r}"
        )
    if roles.label and is_labelled:
        note = f"left out the column {roles.label!r} of the files, which have their labels from elsewhere"
        roles = roles._replace(label="", notes=(*roles.notes, note))
    found = read_steps(sheet, roles, layout, [name] * len(sheet.cells))
    return replace(found, recordings=[replace(found.recordings[0], place=str(path))])


def _with_texts(contents: Contents, texts: Texts) -> Contents:
    label, group, split = texts
    return replace(contents, recordings=[replace(contents.recordings[0], label=label, group=group, split=split)])


def _like(first: Contents, found: Contents) -> Contents:
    """The recording of a file with the channels in the order of the first file.

    Raises: InputError naming the file and the channel that is missing or unknown, or times that only one file has.
    """
    recording, place = found.recordings[0], first.recordings[0].place
    for channels, others, what in ((first, found, "lacks the channel"), (found, first, "has the channel")):
        if odd := [name for name in channels.channels if name not in others.channels]:
            raise InputError(f"{recording.place} {what} {odd[0]!r}, unlike {place}")
    if (first.times is None) != (found.times is None) or first.counts_steps != found.counts_steps:
        raise InputError(f"{recording.place} and {place} must both have times, or neither")
    order = [found.channels.index(name) for name in first.channels]
    return replace(found, recordings=[replace(recording, values=recording.values[:, order])])
