"""The one reader of files with many inputs, used by training, evaluation, `predict` and `batch`.

    containers         formats that are neither text nor a table, by their first bytes
    streams            a file as a stream of UTF-8: decompressed, without its byte order mark
    delimited          rows of CSV and TSV
    lines              rows of JSON Lines
    columnar           rows of Parquet
    values             cells -> texts, labels, numbers
    reading            chooses the reader of a file, and checks the columns that a task needs
    documents          files of one document each
    series             all cells of a table of a series, and its numbers
    times              cells -> time stamps
    steps              time stamps -> their step, and the place of each on its grid
    columns            finds the time and the channels
    timeline           series at equal steps, for training and `predict`
    labels             labels -> notes about them
    labelled           labelled recordings, and the options by which they are read
    archives           recordings of the UEA and UCR archives
    recording_tables   recordings of a table: a row a step, or a row a recording
    recording_folders  recordings of a folder: a table a recording
    rates              recordings at equal steps
    recordings         chooses the reader of recordings, and tells what was read

A row that cannot be read keeps its place as a `BadRow`: training stops at it, `predict` and `batch` write its error and
go on.
"""
