/** A recording as a chart for each channel, shaded by what the stretches contribute to a label. */

import { useMemo, useState } from 'preact/hooks'
import type { ApiRequest } from './api'
import { Chart, type Shade } from './chart'
import { count, number } from './format'
import { evidenceText, type RecordingResult, rivalOf, shade, stretchesOf, type Weighed } from './parts'

interface Props {
  result: RecordingResult
  request: ApiRequest
  label: string
  isShown: boolean
}

type Values = (number | null)[]
type Stretch = Weighed<number>

/** Number of channels that are drawn until all are asked for. */
const LISTED = 12
/** Opacity of the strongest stretch; lines stay visible in front of it. */
const STRONGEST = 0.4

export function RecordingEvidence({ result, request, label, isShown }: Props) {
  const channels = useMemo(() => sentSeries(request), [request])
  const stretches = useMemo(() => stretchesOf(result, label), [result, label])
  const [hovered, setHovered] = useState<number | null>(null)
  const [isLong, setLong] = useState(false)
  const steps = channels[0]?.[1].length ?? 0
  const x = useMemo(() => Array.from({ length: steps }, (_, index) => index + 1), [steps])
  const shades = useMemo(() => stretches.map(shadeOf), [stretches])
  const most = stretches.reduce((best, each) => (each.evidence > best.evidence ? each : best))
  const below = stretches.find(({ start, end }) => hovered !== null && start <= hovered && hovered < end)
  return (
    <>
      <p class="summary" aria-live="polite">
        {most.evidence > 0
          ? `Most for ${label}: ${placeOf(most)} (+${most.evidence.toFixed(2)}).`
          : `No stretch speaks for ${label}.`}
      </p>
      <div class="toolbar">
        <div class="legend">
          <span>
            <i class="swatch for" /> speaks for {label}
          </span>
          <span>
            <i class="swatch against" /> speaks for {rivalOf(result, label)}
          </span>
        </div>
        <span class="readout">{below && `${placeOf(below)}: ${evidenceText(below.evidence, label)}`}</span>
      </div>
      {isShown && (
        <div class="charts">
          {(isLong ? channels : channels.slice(0, LISTED)).map(([name, values]) => (
            <ChannelChart
              key={name}
              name={name}
              values={values}
              x={x}
              shades={shades}
              hovered={hovered}
              onHover={setHovered}
            />
          ))}
        </div>
      )}
      {channels.length > LISTED && (
        <button type="button" class="link" onClick={() => setLong(!isLong)}>
          {isLong ? 'Show fewer' : `Show all ${channels.length} channels`}
        </button>
      )}
      <p class="muted hint">
        What a stretch contributes is how much the answer changes if a straight line replaces it in all channels.
      </p>
      <StretchTable stretches={stretches} label={label} />
    </>
  )
}

function ChannelChart(props: {
  name: string
  values: Values
  x: number[]
  shades: Shade[]
  hovered: number | null
  onHover: (index: number | null) => void
}) {
  const { name, values, x, hovered } = props
  const data = useMemo((): [number[], Values] => [x, values], [x, values])
  const known = values.filter((value) => value !== null)
  const value = hovered === null ? undefined : values[hovered]
  return (
    <figure>
      <figcaption>
        <strong>{name}</strong>
        <span class="readout">
          {hovered !== null && `step ${count(hovered + 1)} · ${value == null ? 'missing' : number(value)}`}
        </span>
      </figcaption>
      <Chart
        summary={`${name}: ${count(values.length)} steps between ${number(extreme(known, Math.min))} and ${number(extreme(known, Math.max))}`}
        data={data}
        lines={[{ label: name, color: '--text' }]}
        shades={props.shades}
        hasTime={false}
        height={150}
        range={[0.5, x.length + 0.5]}
        onHover={props.onHover}
        format={number}
      />
    </figure>
  )
}

/** The contributions for those who do not see the charts. */
function StretchTable({ stretches, label }: { stretches: Stretch[]; label: string }) {
  return (
    <details>
      <summary>Stretches as a table</summary>
      <section class="scroll" tabIndex={0} aria-label="Stretches as a table">
        <table>
          <thead>
            <tr>
              <th scope="col">stretch</th>
              <th scope="col">speaks for {label}</th>
            </tr>
          </thead>
          <tbody>
            {stretches.map((stretch) => (
              <tr key={stretch.start}>
                <th scope="row">{placeOf(stretch)}</th>
                <td>{stretch.evidence.toFixed(3)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </details>
  )
}

/** Channels and their values, as they were sent. */
function sentSeries({ body }: ApiRequest): [string, Values][] {
  return Object.entries((JSON.parse(String(body?.content)) as { series: Record<string, Values> }).series)
}

/** A step is drawn at its number, so the shade of a stretch begins half a step before. */
function shadeOf({ start, end, evidence, weight }: Stretch): Shade {
  const color = evidence >= 0 ? '--for' : '--against'
  return { start: start + 0.5, end: end + 0.5, color, opacity: STRONGEST * shade(weight) }
}

function placeOf({ start, end }: Stretch): string {
  return end - start === 1 ? `step ${count(end)}` : `steps ${count(start + 1)} to ${count(end)}`
}

/** The lowest or highest value; without spreading, which fails for many values. */
function extreme(values: number[], of: (a: number, b: number) => number): number {
  return values.reduce((best, value) => of(best, value))
}
