import type { Asker } from "./query-forward.ts";

/** Has `leave` called when something ends the waiting; returns what undoes that. */
export type Departure = (leave: () => void) => () => void;

/** When the client goes away; nothing else may wait for that meanwhile. */
export function whenClosed(asker: Asker): Departure {
  return (leave) => {
    asker.whenClosed = leave;
    return () => {
      asker.whenClosed = undefined;
    };
  };
}

/** When the asker gives up. */
export function whenAborted(signal: AbortSignal): Departure {
  return (leave) => {
    signal.addEventListener("abort", leave, { once: true });
    return () => signal.removeEventListener("abort", leave);
  };
}

/** When one or the other does. */
export function whenEither(one: Departure, other: Departure): Departure {
  return (leave) => {
    const forgetOne = one(leave);
    const forgetOther = other(leave);
    return () => {
      forgetOne();
      forgetOther();
    };
  };
}
