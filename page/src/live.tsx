/** The tab that draws the metrics of the last minutes. */

import { useMemo, useState } from 'preact/hooks'
import { Chart, type Line } from './chart'
import { count, milliseconds, short } from './format'
import { type Curve, gauge, KEPT_S, mean, quantile, rate, useLive } from './metrics'
import type { ModelList } from './models'
import { CopyRequest, Select } from './ui'

interface Panel {
  title: string
  /** What the values are. */
  note: string
  lines: Line[]
  curves: Curve[]
  format: (value: number) => string
  isWhole?: boolean
}

export function LiveTab({ list, isShown }: { list: ModelList | null; isShown: boolean }) {
  const { samples, isUp } = useLive()
  const [model, setModel] = useState('')
  const names = [...new Set((list?.models ?? []).map(({ name }) => name))]

  const panels = useMemo((): Panel[] => {
    if (!isShown) return []
    const labels: Record<string, string> = model ? { model } : {}
    const duration = 'longdoc_request_duration_seconds'
    const inMs = (curve: Curve) => curve.map((value) => (value === null ? null : 1000 * value))
    return [
      {
        title: 'Requests answered',
        note: 'per second',
        lines: [{ label: 'answered', color: '--accent', width: 2 }],
        curves: [rate(samples, `${duration}_count`, labels)],
        format: short,
      },
      {
        title: 'Time to answer',
        note: 'median and 99th percentile',
        lines: [
          { label: 'median', color: '--accent', width: 2 },
          { label: 'p99', color: '--history' },
        ],
        curves: [inMs(quantile(samples, duration, labels, 0.5)), inMs(quantile(samples, duration, labels, 0.99))],
        format: milliseconds,
      },
      {
        title: 'Batch size',
        note: 'mean rows',
        lines: [{ label: 'rows', color: '--accent', width: 2 }],
        curves: [mean(samples, 'longdoc_batch_size', labels)],
        format: short,
      },
      {
        title: 'Queue',
        note: 'rows waiting',
        lines: [{ label: 'queued', color: '--accent', width: 2 }],
        curves: [gauge(samples, 'longdoc_queue_depth', labels)],
        format: count,
        isWhole: true,
      },
      {
        title: 'Refused',
        note: 'per second',
        lines: [{ label: 'refused', color: '--against', width: 2 }],
        curves: [rate(samples, 'longdoc_requests_rejected_total', labels)],
        format: short,
      },
    ]
  }, [samples, model, isShown])
  const times = samples.map(({ time }) => time)
  const now = times.at(-1) ?? 0

  return (
    <>
      <div class="intro">
        <h1>Live</h1>
        <p>The last five minutes, from when this page was opened. Rates and percentiles are those of ten seconds.</p>
      </div>
      <div class="card">
        <div class="options">
          <Select
            label="Model"
            value={model}
            options={[{ value: '', text: 'all models' }, ...names.map((name) => ({ value: name, text: name }))]}
            onChange={setModel}
          />
        </div>
        {samples.length === 0 && (
          <p class="muted">{isUp === false ? 'The service does not answer.' : 'Asking for metrics…'}</p>
        )}
        {samples.length > 0 && (
          <div class="charts live">
            {panels.map(({ title, note, lines, curves, format, isWhole }) => {
              const last = curves.map((curve) => curve.findLast((value) => value !== null) ?? null)
              const texts = last.map((value) => (value === null ? '–' : format(value)))
              return (
                <figure key={title}>
                  <figcaption>
                    <strong>{title}</strong>
                    <span class="muted">{note}</span>
                    <span class="now">{texts.join(' / ')}</span>
                  </figcaption>
                  <Chart
                    summary={`${title}, ${note}: now ${texts.join(' and ')}`}
                    data={[times, ...curves]}
                    lines={lines}
                    hasTime
                    isLocal
                    height={150}
                    range={[Math.min(now - 60, Math.max(now - KEPT_S, times[0] ?? 0)), now]}
                    fromZero
                    {...(isWhole ? { isWhole } : {})}
                    format={format}
                  />
                </figure>
              )
            })}
          </div>
        )}
        <CopyRequest request={{ path: 'metrics' }} />
      </div>
    </>
  )
}
