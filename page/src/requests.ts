/** Runs a request and keeps its state: running, answered, failed, or waiting to be tried again. */

import { useCallback, useEffect, useRef, useState } from 'preact/hooks'
import { type Answer, type ApiRequest, ask, Problem } from './api'
import { poll } from './metrics'

export interface RequestState<T> {
  isRunning: boolean
  answer: Answer<T> | null
  /** The request of the answer. */
  request: ApiRequest | null
  problem: Problem | null
  /** Seconds until the request is sent again after a 429 or 503; null if it is not. */
  retryIn: number | null
}

export interface Runner<T> extends RequestState<T> {
  /** Send a request; one that is running or waiting is cancelled. */
  run: (request: ApiRequest) => Promise<Answer<T> | null>
  fail: (problem: Problem) => void
  cancel: () => void
  /** Stop the request and forget its answer. */
  reset: () => void
}

const NOTHING = { isRunning: false, answer: null, request: null, problem: null, retryIn: null }

export function useRequest<T>(): Runner<T> {
  const [state, setState] = useState<RequestState<T>>(NOTHING)
  const controller = useRef(new AbortController())
  const timer = useRef<ReturnType<typeof setInterval> | undefined>(undefined)

  const stop = useCallback(() => {
    clearInterval(timer.current)
    controller.current.abort()
    controller.current = new AbortController()
  }, [])
  useEffect(() => stop, [stop])

  const cancel = useCallback(() => {
    stop()
    setState((old) => ({ ...old, isRunning: false, retryIn: null }))
  }, [stop])

  const reset = useCallback(() => {
    stop()
    setState(NOTHING)
  }, [stop])

  const run = useCallback(
    async (request: ApiRequest): Promise<Answer<T> | null> => {
      stop()
      const { signal } = controller.current
      setState((old) => ({ ...old, isRunning: true, problem: null, retryIn: null }))
      try {
        const answer = await ask<T>(request, signal)
        setState({ ...NOTHING, answer, request })
        return answer
      } catch (error) {
        if (signal.aborted) return null
        const problem = error instanceof Problem ? error : new Problem('The page failed', String(error))
        if (problem.status === 0) void poll()
        const wait = problem.status === 429 || problem.status === 503 ? problem.retryAfter : null
        setState({ ...NOTHING, problem, retryIn: wait })
        if (wait === null) return null
        return await new Promise((resolve) => {
          let left = wait
          timer.current = setInterval(() => {
            left -= 1
            if (left > 0) setState((old) => ({ ...old, retryIn: left }))
            else resolve(run(request))
          }, 1000)
        })
      }
    },
    [stop],
  )

  const fail = useCallback(
    (problem: Problem) => {
      stop()
      setState({ ...NOTHING, problem })
    },
    [stop],
  )
  return { ...state, run, fail, cancel, reset }
}
