import type { ClientSink } from "./query-forward.ts";

/** Has `leave` called when something ends the waiting; returns what undoes that. */
export type Cancellation = (leave: () => void) => () => void;

/** When the client goes away; nothing else may wait for that meanwhile. */
export function whenClosed(sink: ClientSink): Cancellation {
  return (leave) => {
    sink.whenClosed = leave;
    return () => {
      sink.whenClosed = undefined;
    };
  };
}

/** When the sink gives up. */
export function whenAborted(signal: AbortSignal): Cancellation {
  return (leave) => {
    signal.addEventListener("abort", leave, { once: true });
    return () => signal.removeEventListener("abort", leave);
  };
}

/** When one or the other does. */
export function whenEither(one: Cancellation, other: Cancellation): Cancellation {
  return (leave) => {
    const forgetOne = one(leave);
    const forgetOther = other(leave);
    return () => {
      forgetOne();
      forgetOther();
    };
  };
}
