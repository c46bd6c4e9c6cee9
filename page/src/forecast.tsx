/** The tab that forecasts a series from a CSV file. */

import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { Problem } from './api'
import { Chart } from './chart'
import { CsvError, isSameFrequency, MAX_BYTES, readTable, type Table } from './csv'
import { count, number, plural, size, time } from './format'
import { type AnyForecaster, choices, type Forecaster, idOf, type ModelList } from './models'
import { useRequest } from './requests'
import * as example from './series-example'
import {
  AnswerCard,
  AnsweredBy,
  Channels,
  ChooseFile,
  CopyRequest,
  Drop,
  Failure,
  ModelSelect,
  onSubmitKey,
  save,
} from './ui'

interface Response {
  model: string
  version: number
  forecast: Record<string, number[]> | number[][]
  quantiles: Record<string, Record<string, number[]> | number[][]>
  quantiles_reliable: boolean
  coverage: { observations_total: number; observations_used: number; imputed: number; context_length: number }
  timestamps?: string[]
  season?: Season | Record<string, Season>
  season_from?: 'request' | 'frequency' | 'data'
}

type Season = number | number[]

interface Opened {
  name: string
  table: Table
}

/** What was asked: a channel of the model is read from a column of the table. */
interface Asked {
  table: Table
  channels: string[]
  columns: string[]
  /** Forecaster of any series, whose last steps are also forecast from those before. */
  any: AnyForecaster | null
}

const LEVELS = ['0.1', '0.9'] as const
/** Longest forecast of any series. */
const MAX_STEPS = 960

/** Columns for the channels of a model, by name or, if they have other names, by position; null if they do not fit. */
function columnsFor(model: Forecaster, table: Table): string[] | null {
  const names = table.columns.map(({ name }) => name)
  if (model.kind === 'any-series') return names
  if (model.channels.every((channel) => names.includes(channel))) return model.channels
  return names.length === model.channels.length ? names : null
}

function hasNames(model: Forecaster, table: Table): boolean {
  if (model.kind === 'any-series') return true
  return model.channels.every((channel) => table.columns.some(({ name }) => name === channel))
}

function hasFrequency(model: Forecaster, { frequency }: Table): boolean {
  if (model.kind === 'any-series' || model.frequency === 'irregular') return true
  return frequency === null || isSameFrequency(frequency, model.frequency)
}

function channelsOfModel(model: Forecaster, table: Table): string[] {
  return model.kind === 'any-series' ? table.columns.map(({ name }) => name) : model.channels
}

/** The models that can read a table, the best fitting first: one trained on its channels, then one of any series. */
function fitting(models: Forecaster[], table: Table): Forecaster[] {
  const rank = (model: Forecaster) =>
    model.kind === 'any-series' ? 0.5 : (hasNames(model, table) ? 0 : 2) + (hasFrequency(model, table) ? 0 : 1)
  return models.filter((model) => columnsFor(model, table)).sort((a, b) => rank(a) - rank(b))
}

export function Forecast({ list, isShown }: { list: ModelList | null; isShown: boolean }) {
  const models = choices(list, 'forecasting')
  const [opened, setOpened] = useState<Opened | null>(null)
  const [chosen, setChosen] = useState('')
  const [horizon, setHorizon] = useState('')
  const [asked, setAsked] = useState<Asked | null>(null)
  const runner = useRequest<Response>()
  /** Forecast of the last steps from those before. */
  const held = useRequest<Response>()
  /** Whether the opened table waits for the list of models. */
  const isWaiting = useRef(false)
  const able = opened ? fitting(models, opened.table) : models
  const model = able.find((each) => idOf(each) === chosen) ?? able[0]

  const forecast = (table: Table, reader: Forecaster, steps = horizon) => {
    const channels = channelsOfModel(reader, table)
    const columns = columnsFor(reader, table)
    if (!columns)
      return runner.fail(
        new Problem(
          'The columns do not fit the model',
          `${reader.name} reads ${count(channels.length)} channels: ${channels.join(', ')}.`,
        ),
      )
    const kept = reader.context_length
    const any = reader.kind === 'any-series' ? reader : null
    const start = table.times?.slice(-kept)[0]
    const request = (withheld: number, options: object) => {
      const series = channels.map((channel, index) => {
        const values = table.columns.find(({ name }) => name === columns[index])?.values ?? []
        return [channel, values.slice(0, values.length - withheld).slice(-kept)] as const
      })
      const content = JSON.stringify({
        model: idOf(reader),
        series: Object.fromEntries(series),
        quantiles: LEVELS.map(Number),
        ...(table.frequency ? { frequency: table.frequency } : {}),
        ...options,
      })
      return { path: 'v1/forecast', body: { type: 'application/json', content } }
    }
    setAsked({ table, channels, columns, any })
    held.reset()
    return runner
      .run(
        request(0, {
          ...(steps || !any ? { horizon: Number(steps) || Math.min(96, reader.horizon) } : {}),
          ...(start !== undefined && table.frequency
            ? { start: new Date(start * 1000).toISOString().slice(0, 19) }
            : {}),
        }),
      )
      .then((answer) => {
        const ahead = answer ? stepsOf(answer.data) : 0
        const rows = table.columns[0]?.values.length ?? 0
        if (any && ahead > 0 && rows > ahead) void held.run(request(ahead, { horizon: ahead }))
      })
  }
  const open = (name: string, text: string) => {
    let table: Table
    try {
      table = readTable(text)
    } catch (error) {
      if (!(error instanceof CsvError)) throw error
      setOpened(null)
      return runner.fail(new Problem(`${name} cannot be read as a series`, error.message))
    }
    setOpened({ name, table })
    if (list) return start(name, table)
    isWaiting.current = true
  }
  const start = (name: string, table: Table) => {
    const [best] = fitting(models, table)
    setChosen(best ? idOf(best) : '')
    if (best) return forecast(table, best)
    const known = models.map((each) => `${each.name} reads ${channelsOfModel(each, table).join(', ')}`).join('; ')
    return runner.fail(
      new Problem(
        'No model reads these columns',
        `${name} has ${table.columns.map((column) => column.name).join(', ')}. ${known}.`,
      ),
    )
  }
  useEffect(() => {
    if (!list || !opened || !isWaiting.current) return
    isWaiting.current = false
    start(opened.name, opened.table)
  }, [list])
  const openFile = async ([file]: File[]) => {
    if (!file) return
    if (file.size > MAX_BYTES)
      return runner.fail(
        new Problem('The file is too long', `${file.name} has ${size(file.size)}; this page reads ${size(MAX_BYTES)}.`),
      )
    open(file.name, await file.text())
  }
  const submit = () => {
    if (opened && model) forecast(opened.table, model)
    else if (!opened) runner.fail(new Problem('There is no series', 'Choose a CSV file, or drop one.'))
  }
  const hasExample = models.some(({ name }) => name === 'ettm2')
  const isAny = model?.kind === 'any-series'

  return (
    <>
      <div class="intro">
        <h1>Forecast a series</h1>
        <p>Drop a CSV file with one column for each series. Its times and frequency are recognised.</p>
      </div>
      <Drop label="Drop a CSV file to forecast it" onFiles={openFile} class="card">
        <div class="options">
          <ModelSelect list={list} models={able} value={model ? idOf(model) : ''} onChange={setChosen} />
          <div class="field">
            <label for="horizon">Steps</label>
            <input
              id="horizon"
              type="number"
              inputMode="numeric"
              min={1}
              max={isAny ? MAX_STEPS : model?.horizon}
              placeholder={isAny ? 'a season' : model ? String(Math.min(96, model.horizon)) : ''}
              value={horizon}
              onInput={(event) => setHorizon(event.currentTarget.value)}
              onKeyDown={onSubmitKey(submit)}
            />
          </div>
        </div>
        {opened ? <TableView opened={opened} model={model} /> : <p class="target">Drop a CSV file here</p>}
        <div class="actions">
          <button type="button" class="primary" disabled={runner.isRunning} onClick={submit}>
            {runner.isRunning ? 'Forecasting…' : 'Forecast'}
          </button>
          <ChooseFile text="Choose a CSV file" accept=".csv,.tsv,.txt,text/csv" onFiles={openFile} />
        </div>
        {hasExample && (
          <p class="examples">
            <span>Try</span>
            <button type="button" class="link" onClick={() => open(example.NAME, example.csv())}>
              a week of a transformer
            </button>
          </p>
        )}
      </Drop>
      <Failure of={runner} />
      {runner.answer && runner.request && asked && (
        <AnswerCard answer={runner.answer}>
          <Answered data={runner.answer.data} held={held.answer?.data ?? null} asked={asked} isShown={isShown} />
          <AnsweredBy answer={runner.answer} />
          <CopyRequest request={runner.request} />
        </AnswerCard>
      )}
    </>
  )
}

/** What was recognised in a file. */
function TableView({ opened, model }: { opened: Opened; model: Forecaster | undefined }) {
  const { name, table } = opened
  const rows = table.columns[0]?.values.length ?? 0
  const first = table.times?.[0]
  const last = table.times?.at(-1)
  const isNamed = !model || hasNames(model, table)
  return (
    <div class="file">
      <p>
        <strong>{name}</strong>
        <span>{plural(rows, 'step')}</span>
        <span>{table.frequency ? `one every ${table.frequency}` : 'no regular times'}</span>
        {first !== undefined && last !== undefined && (
          <span>
            {time(first)} to {time(last)}
          </span>
        )}
      </p>
      <Channels of={table.columns} />
      {!isNamed && model && model.kind !== 'any-series' && (
        <p class="note">
          The columns have other names than the channels of {model.name}; they are read in its order:{' '}
          {model.channels.join(', ')}.
        </p>
      )}
      {model && model.kind !== 'any-series' && !hasFrequency(model, table) && (
        <p class="note">
          {model.name} expects a value every {model.frequency}.
        </p>
      )}
      {table.added > 0 && (
        <p class="note">{plural(table.added, 'step')} missing in the file; the service imputes them.</p>
      )}
      {table.ignored.length > 0 && <p class="note">Not numbers, so not used: {table.ignored.join(', ')}.</p>}
    </div>
  )
}

interface Channel {
  name: string
  column: string
  history: (number | null)[]
  mean: number[]
  low: number[]
  high: number[]
  /** Forecast of the last known steps from those before; empty if there is none. */
  held: number[]
}

function Answered(props: { data: Response; held: Response | null; asked: Asked; isShown: boolean }) {
  const { data, held, asked, isShown } = props
  const channels = useMemo(() => channelsOf(data, held, asked), [data, held, asked])
  const steps = channels[0]?.mean.length ?? 0
  const known = asked.table.columns[0]?.values.length ?? 0
  const x = useMemo(() => axisOf(data, asked.table, known, steps), [data, asked, known, steps])
  const hasTime = data.timestamps !== undefined
  const recent = useMemo((): [number, number] => {
    const first = Math.max(0, known - Math.max(2 * steps, data.coverage.context_length))
    return [x[first] ?? 0, x.at(-1) ?? 1]
  }, [x, known, steps, data])
  const everything: [number, number] = [x[0] ?? 0, x.at(-1) ?? 1]
  const [range, setRange] = useState<[number, number] | null>(null)
  const [hovered, setHovered] = useState<number | null>(null)
  const shown = range ?? recent
  const zoom = (factor: number) => {
    const [low, high] = shown
    const width = Math.min((high - low) * factor, everything[1] - everything[0])
    const end = Math.min(everything[1], high + (factor > 1 ? (width - (high - low)) / 2 : 0))
    setRange([Math.max(everything[0], end - width), end])
  }
  const { imputed, context_length } = data.coverage
  return (
    <>
      <p class="summary" aria-live="polite">
        {plural(steps, 'step')} ahead of {plural(channels.length, 'channel')}, from the last {count(context_length)}{' '}
        steps.
        {imputed > 0 && ` ${plural(imputed, 'missing value')} imputed.`} {seasonOf(data)}
      </p>
      {!data.quantiles_reliable && (
        <p class="warning" role="note">
          The bands of this forecast are not reliable: on test data they covered clearly more or less than 80 %, or too
          many values were missing.
        </p>
      )}
      <div class="toolbar">
        <div class="legend">
          <span>
            <i class="line history" /> history
          </span>
          <span>
            <i class="line forecast" /> forecast
          </span>
          <span>
            <i class="swatch band" /> 80 % band
          </span>
          {held && (
            <span>
              <i class="line held" /> forecast of the last {plural(steps, 'step')}, held back
            </span>
          )}
        </div>
        <fieldset class="zoom" aria-label="Range">
          <button type="button" class="quiet" onClick={() => zoom(0.5)} aria-label="Zoom in">
            +
          </button>
          <button type="button" class="quiet" onClick={() => zoom(2)} aria-label="Zoom out">
            −
          </button>
          <button type="button" class="quiet" onClick={() => setRange(null)}>
            Recent
          </button>
          <button type="button" class="quiet" onClick={() => setRange(everything)}>
            All
          </button>
          <button type="button" onClick={() => save('forecast.csv', csvOf(channels, x, known, hasTime), 'text/csv')}>
            Download CSV
          </button>
        </fieldset>
      </div>
      {isShown && (
        <div class="charts">
          {channels.map((channel) => (
            <ChannelChart
              key={channel.name}
              channel={channel}
              x={x}
              known={known}
              hasTime={hasTime}
              range={shown}
              hovered={hovered}
              onHover={setHovered}
              onZoom={setRange}
            />
          ))}
        </div>
      )}
      <p class="muted hint">Drag across a chart to zoom in on a range; a double click shows the recent part again.</p>
      <ForecastTable channels={channels} x={x} known={known} hasTime={hasTime} />
    </>
  )
}

function ChannelChart(props: {
  channel: Channel
  x: number[]
  known: number
  hasTime: boolean
  range: [number, number]
  hovered: number | null
  onHover: (index: number | null) => void
  onZoom: (range: [number, number] | null) => void
}) {
  const { channel, x, known, hasTime, hovered } = props
  const { history, mean, low, high, held } = channel
  const data = useMemo((): [number[], ...(number | null)[][]] => {
    const gap = new Array<null>(known).fill(null)
    // The curves of the forecast begin at the last known value, so that they are connected.
    const last = history.at(-1) ?? null
    const after = (values: number[]) => [...gap.slice(0, -1), last, ...values]
    const ahead = new Array<null>(mean.length).fill(null)
    const back = [...gap.slice(held.length), ...held, ...ahead]
    return [x, [...history, ...ahead], after(mean), after(high), after(low), back]
  }, [x, channel, known])
  const ahead = hovered === null ? -1 : hovered - known
  const at = hovered === null ? '' : label(x, hovered, hasTime)
  const past = hovered === null ? null : history[hovered]
  const was = hovered === null || ahead >= 0 ? undefined : held[hovered - known + held.length]
  const readout =
    hovered === null
      ? ''
      : ahead >= 0
        ? `${at} · ${number(mean[ahead] ?? 0)} (${number(low[ahead] ?? 0)} to ${number(high[ahead] ?? 0)})`
        : `${at} · ${past === null || past === undefined ? 'missing' : number(past)}${was === undefined ? '' : `, forecast ${number(was)}`}`
  return (
    <figure>
      <figcaption>
        <strong>{channel.column}</strong>
        {channel.column !== channel.name && <span class="muted">as {channel.name}</span>}
        <span class="readout">{readout}</span>
      </figcaption>
      <Chart
        summary={`${channel.column}: forecast from ${number(mean[0] ?? 0)} to ${number(mean.at(-1) ?? 0)}; at the last step the band is ${number(low.at(-1) ?? 0)} to ${number(high.at(-1) ?? 0)}`}
        data={data}
        lines={[
          { label: 'history', color: '--history' },
          { label: 'forecast', color: '--accent', width: 2 },
          { label: 'upper', color: '--band-edge', width: 1 },
          { label: 'lower', color: '--band-edge', width: 1 },
          { label: 'held back', color: '--against', width: 1.5, dash: [4, 3] },
        ]}
        band={[3, 4]}
        hasTime={hasTime}
        height={190}
        range={props.range}
        onHover={props.onHover}
        onZoom={props.onZoom}
        format={number}
      />
    </figure>
  )
}

/** The same values for those who do not see the charts. */
function ForecastTable(props: { channels: Channel[]; x: number[]; known: number; hasTime: boolean }) {
  const { channels, x, known, hasTime } = props
  const [isOpen, setOpen] = useState(false)
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Values as a table</summary>
      {isOpen && (
        <section class="scroll" tabIndex={0} aria-label="Forecast as a table">
          <table>
            <thead>
              <tr>
                <th scope="col">{hasTime ? 'time' : 'step'}</th>
                {channels.map(({ name, column }) => (
                  <th key={name} scope="col">
                    {column}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {(channels[0]?.mean ?? []).map((_, step) => (
                <tr key={step}>
                  <th scope="row">{label(x, known + step, hasTime)}</th>
                  {channels.map(({ name, mean, low, high }) => (
                    <td key={name}>
                      {number(mean[step] ?? 0)}{' '}
                      <small>
                        {number(low[step] ?? 0)} to {number(high[step] ?? 0)}
                      </small>
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
    </details>
  )
}

/** Number of steps of a forecast. */
function stepsOf(data: Response): number {
  return Object.values(data.forecast)[0]?.length ?? 0
}

/** What a forecaster of any series says of the season. */
function seasonOf({ season, season_from }: Response): string {
  if (season === undefined || season_from === undefined) return ''
  const told = (one: Season) => (Array.isArray(one) ? one.join(' and ') : String(one))
  const each = typeof season === 'object' && !Array.isArray(season) ? Object.values(season).map(told) : [told(season)]
  const found = [...new Set(each)]
  if (found.every((one) => one === '1')) return 'No season was found.'
  const from = { request: 'as asked', frequency: 'by the frequency', data: 'found in the data' }[season_from]
  return `Season: ${found.join(', ')} steps, ${from}.`
}

function channelsOf(data: Response, held: Response | null, { table, channels, columns }: Asked): Channel[] {
  const pick = (from: Record<string, number[]> | number[][] | undefined, channel: string, index: number) =>
    (Array.isArray(from) ? from[index] : from?.[channel]) ?? []
  return channels.map((name, index) => ({
    name,
    column: columns[index] ?? name,
    history: table.columns.find((column) => column.name === columns[index])?.values ?? [],
    mean: pick(data.forecast, name, index),
    low: pick(data.quantiles[LEVELS[0]], name, index),
    high: pick(data.quantiles[LEVELS[1]], name, index),
    held: held ? pick(held.forecast, name, index) : [],
  }))
}

/** Times in seconds if the service returned them; else numbers of steps. */
function axisOf(data: Response, table: Table, known: number, steps: number): number[] {
  if (!data.timestamps || !table.times) return Array.from({ length: known + steps }, (_, index) => index)
  return [...table.times, ...data.timestamps.map((text) => Date.parse(`${text.slice(0, 19)}Z`) / 1000)]
}

function label(x: number[], index: number, hasTime: boolean): string {
  const value = x[index] ?? 0
  if (!hasTime) return `step ${count(value + 1)}`
  return time(
    value,
    x.every((each) => each % 86_400 === 0),
  )
}

function csvOf(channels: Channel[], x: number[], known: number, hasTime: boolean): string {
  const cell = (text: string) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)
  const head = [
    hasTime ? 'time' : 'step',
    ...channels.flatMap(({ column }) => [column, ...LEVELS.map((level) => `${column} ${level}`)]),
  ]
  const rows = (channels[0]?.mean ?? []).map((_, step) => {
    const at = x[known + step] ?? 0
    const when = hasTime ? new Date(at * 1000).toISOString().slice(0, 19) : String(at + 1)
    return [when, ...channels.flatMap(({ mean, low, high }) => [mean[step], low[step], high[step]])].join(',')
  })
  return [head.map(cell).join(','), ...rows, ''].join('\n')
}
