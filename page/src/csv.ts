/** Reads series and recordings from CSV: columns, time and frequency are recognised. */

export interface Column {
  name: string
  /** null where a value is missing. */
  values: (number | null)[]
}

export interface Table {
  columns: Column[]
  /** Seconds since 1970, as if the times were UTC; null without a column of times. */
  times: number[] | null
  /** Length of a step as the service writes it, such as 15min or 1mo; null if it is unknown or varies. */
  frequency: string | null
  /** Names of columns that hold neither times nor numbers. */
  ignored: string[]
  /** Steps that were missing in the file; their values are null. */
  added: number
}

/** A recording to classify: a row for each step. */
export interface Recording {
  columns: Column[]
  /** Names of columns that are no channels. */
  leftOut: string[]
}

/** The file cannot be read; the message names the line. */
export class CsvError extends Error {}

/** Longest file that the page reads. */
export const MAX_BYTES = 64 * 2 ** 20
/** Names of columns that tell the time, the step or the label of a row, or the recording that it belongs to. */
const NO_CHANNEL =
  /^(date|datetime|times?|timestamp|ts?|step|frame|sample|index|idx|timepoint|label|id|recording|(recording|series|case)_id)$/i
const MISSING = new Set(['', 'na', 'nan', 'null', 'none', 'n/a', '-'])
const NUMBER = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i
const ISO =
  /^(\d{4})[-/](\d{1,2})(?:[-/](\d{1,2}))?(?:[T ](\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?)?(?:Z|[-+]\d{2}:?\d{2})?$/
const DAY_FIRST = /^(\d{1,2})\.(\d{1,2})\.(\d{4})(?:[T ](\d{1,2}):(\d{2})(?::(\d{2}))?)?$/
const MAX_ADDED = 100_000
const DAY_S = 86_400

/** Names in the first line. */
export function namesOf(text: string): string[] {
  const [first = ''] = text.replace(/^\ufeff/, '').split(/[\r\n]/, 1)
  return first.split(/[,;\t]/).map((name) => name.trim().replace(/^"(.*)"$/, '$1'))
}

/** Read a recording for a model with these channels; other columns of numbers are kept, too. Throws CsvError. */
export function readRecording(text: string, channels: string[]): Recording {
  const { names, columns } = readColumns(text)
  const kept = columns.filter(({ name }) => channels.includes(name) || !NO_CHANNEL.test(name))
  if (kept.length === 0) throw new CsvError('No column of numbers is a channel.')
  return { columns: kept, leftOut: names.filter((name) => kept.every((column) => column.name !== name)) }
}

/** Read a series. Throws CsvError. */
export function readTable(text: string): Table {
  const { names, columns, body, timeIndex } = readColumns(text)
  const ignored = names.filter((name, index) => index !== timeIndex && columns.every((column) => column.name !== name))
  if (timeIndex < 0) return { columns, times: null, frequency: null, ignored, added: 0 }
  const times = body.map(({ line, cells }) => {
    const time = timeOf(cells[timeIndex] ?? '')
    if (time === null)
      throw new CsvError(
        `Line ${line}, column ${names[timeIndex]}: “${(cells[timeIndex] ?? '').slice(0, 40)}” is not a time.`,
      )
    return time
  })
  return { ...withoutGaps(columns, times), ignored }
}

interface Columns {
  /** Of all columns. */
  names: string[]
  /** Those that hold numbers. */
  columns: Column[]
  body: Row[]
  /** Column of times; -1 if there is none. */
  timeIndex: number
}

/** Read the columns of numbers. Throws CsvError. */
function readColumns(text: string): Columns {
  const rows = rowsOf(text)
  const [head, ...body] = rows
  if (!head || body.length < 2)
    throw new CsvError('The file needs a line with names and at least two lines with values.')
  const width = head.cells.length
  for (const { line, cells } of body)
    if (cells.length !== width)
      throw new CsvError(`Line ${line} has ${cells.length} cells; line ${head.line} with the names has ${width}.`)
  const names = head.cells.map((name, index) => name.trim() || `column ${index + 1}`)
  const twice = names.find((name, index) => names.indexOf(name) !== index)
  if (twice !== undefined) throw new CsvError(`Two columns have the name “${twice}”.`)
  if (names.every((name) => NUMBER.test(name))) throw new CsvError(`Line ${head.line} has numbers instead of names.`)

  const timeIndex = names.findIndex((_, index) => share(body, index, (cell) => timeOf(cell) !== null) > 0.9)
  const isMarked = (index: number) =>
    index !== timeIndex && share(body, index, (cell) => numberOf(cell) !== undefined) > 0.8
  const numeric = names.map((_, index) => index).filter(isMarked)
  if (numeric.length === 0) throw new CsvError('No column holds numbers.')
  const columns = numeric.map((index) => ({
    name: names[index] ?? '',
    values: body.map(({ line, cells }) => {
      const value = numberOf(cells[index] ?? '')
      if (value === undefined)
        throw new CsvError(
          `Line ${line}, column ${names[index]}: “${(cells[index] ?? '').slice(0, 40)}” is not a number.`,
        )
      return value
    }),
  }))
  return { names, columns, body, timeIndex }
}

interface Row {
  line: number
  cells: string[]
}

function rowsOf(text: string): Row[] {
  const clean = text.replace(/^\ufeff/, '')
  const first = clean.slice(0, clean.search(/[\r\n]|$/))
  const separator = [',', ';', '\t'].reduce((best, each) =>
    first.split(each).length > first.split(best).length ? each : best,
  )
  const rows: Row[] = []
  let cells: string[] = []
  let cell = ''
  let isQuoted = false
  let line = 1
  let start = 1
  const endRow = () => {
    cells.push(cell)
    if (cells.some((each) => each.trim() !== '')) rows.push({ line: start, cells })
    cells = []
    cell = ''
  }
  for (let at = 0; at < clean.length; at += 1) {
    const char = clean[at] ?? ''
    if (char === '\n') line += 1
    if (isQuoted) {
      if (char !== '"') cell += char
      else if (clean[at + 1] === '"') {
        cell += '"'
        at += 1
      } else isQuoted = false
    } else if (char === '"' && cell.trim() === '') {
      isQuoted = true
      cell = ''
    } else if (char === separator) {
      cells.push(cell)
      cell = ''
    } else if (char === '\n') {
      endRow()
      start = line
    } else if (char !== '\r') cell += char
  }
  if (isQuoted) throw new CsvError(`A quotation mark that opens in the row of line ${start} is never closed.`)
  endRow()
  if (separator === ';')
    for (const row of rows) row.cells = row.cells.map((each) => each.replace(/^(\s*[-+]?\d+),(\d+)/, '$1.$2'))
  return rows
}

function share(rows: Row[], index: number, test: (cell: string) => boolean): number {
  return rows.filter(({ cells }) => test(cells[index] ?? '')).length / rows.length
}

/** A number, null if it is missing, undefined if it is something else. */
function numberOf(cell: string): number | null | undefined {
  const text = cell.trim()
  if (MISSING.has(text.toLowerCase())) return null
  return NUMBER.test(text) ? Number(text) : undefined
}

/** Seconds since 1970; null if it is not a time. */
function timeOf(cell: string): number | null {
  const text = cell.trim()
  const iso = ISO.exec(text)
  const other = DAY_FIRST.exec(text)
  const [year, month, day, ...clock] = iso
    ? iso.slice(1)
    : other
      ? [other[3], other[2], other[1], ...other.slice(4)]
      : []
  if (year === undefined || month === undefined || Number(month) > 12) return null
  const [hour = 0, minute = 0, second = 0] = clock.map((part) => Number(part ?? 0))
  return Date.UTC(Number(year), Number(month) - 1, Number(day ?? 1), hour, minute, second) / 1000
}

/** Sort by time, recognise the step, and add the steps that are missing. Throws CsvError. */
function withoutGaps(columns: Column[], times: number[]): Omit<Table, 'ignored'> {
  const order = times.map((_, index) => index).sort((a, b) => (times[a] ?? 0) - (times[b] ?? 0))
  const sorted = order.map((index) => times[index] ?? 0)
  const ordered = columns.map(({ name, values }) => ({ name, values: order.map((index) => values[index] ?? null) }))
  const twice = sorted.find((time, index) => index > 0 && time === sorted[index - 1])
  if (twice !== undefined) throw new CsvError(`The time ${new Date(twice * 1000).toISOString()} occurs twice.`)
  const calendar = calendarStep(sorted)
  if (calendar) return { columns: ordered, times: sorted, frequency: calendar, added: 0 }
  const gaps = sorted.slice(1).map((time, index) => time - (sorted[index] ?? 0))
  const step = [...gaps].sort((a, b) => a - b)[gaps.length >> 1] ?? 0
  const places = sorted.map((time) => (time - (sorted[0] ?? 0)) / step)
  const length = (places.at(-1) ?? 0) + 1
  const isRegular = places.every(Number.isInteger) && length - places.length <= MAX_ADDED
  if (!isRegular) return { columns: ordered, times: sorted, frequency: null, added: 0 }
  const filled = ordered.map(({ name, values }) => {
    const all = new Array<number | null>(length).fill(null)
    places.forEach((place, index) => {
      all[place] = values[index] ?? null
    })
    return { name, values: all }
  })
  const regular = Array.from({ length }, (_, index) => (sorted[0] ?? 0) + index * step)
  return { columns: filled, times: regular, frequency: frequencyOf(step), added: length - places.length }
}

/** Steps whose length in seconds varies: months, quarters, years and business days; null for all others. */
function calendarStep(times: number[]): string | null {
  const dates = times.map((time) => new Date(time * 1000))
  if (times.some((time) => time % DAY_S !== 0)) return null
  const isEvery = (test: (a: Date, b: Date) => boolean) =>
    dates.slice(1).every((date, index) => test(dates[index] ?? date, date))
  const isEnd = (date: Date) => new Date(date.getTime() + DAY_S * 1000).getUTCDate() === 1
  const sameDay = dates.every((date) => date.getUTCDate() === dates[0]?.getUTCDate()) || dates.every(isEnd)
  for (const [name, months] of [
    ['1mo', 1],
    ['1q', 3],
    ['1y', 12],
  ] as const) {
    const month = (date: Date) => date.getUTCFullYear() * 12 + date.getUTCMonth()
    if (sameDay && isEvery((a, b) => month(b) - month(a) === months)) return name
  }
  const isWorkday = (date: Date) => date.getUTCDay() % 6 !== 0
  const days = (a: Date, b: Date) => (b.getTime() - a.getTime()) / (DAY_S * 1000)
  const isNext = (a: Date, b: Date) => days(a, b) === (a.getUTCDay() === 5 ? 3 : 1)
  return dates.length > 5 && dates.every(isWorkday) && isEvery(isNext) ? '1b' : null
}

function frequencyOf(step: number): string {
  const units = [
    ['d', DAY_S],
    ['h', 3600],
    ['min', 60],
    ['s', 1],
  ] as const
  const [unit, length] = units.find(([, seconds]) => step % seconds === 0) ?? ['s', 1]
  return `${step / length}${unit}`
}

/** Whether two frequencies mean the same step, such as 60min and 1h. */
export function isSameFrequency(a: string, b: string): boolean {
  return stepOf(a) === stepOf(b)
}

function stepOf(frequency: string): string {
  const match = /^(\d+)(s|min|h|d|w)$/.exec(frequency)
  const seconds = { s: 1, min: 60, h: 3600, d: DAY_S, w: 7 * DAY_S }[match?.[2] ?? '']
  return match && seconds ? `${Number(match[1]) * seconds} s` : frequency
}
