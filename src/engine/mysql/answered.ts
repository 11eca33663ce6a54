import { readError } from "./server-error.ts";

/**
 * Turns the driver's callback into a promise.
 *
 * Throws `ServerError` or `ConnectionLost`.
 */
export function answered<Result>(
  ask: (done: (error: Error | null, result: Result) => void) => unknown,
): Promise<Result> {
  return new Promise((resolve, reject) => {
    try {
      ask((error, result) => (error ? reject(readError(error)) : resolve(result)));
    } catch (error) {
      reject(readError(error));
    }
  });
}
