import type { ServerResponse } from "node:http";

/** Has `leave` called when something ends the waiting; returns what undoes that. */
export type Departure = (leave: () => void) => () => void;

/** When the client goes away. */
export function whenClosed(response: ServerResponse): Departure {
  return (leave) => {
    response.once("close", leave);
    return () => response.off("close", leave);
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
