/** A child process's side: what it has of the process that started it. */
import { type Calls, Channel, type ErrorCodec, type Handlers, type Message } from "./channel.ts";
import { answerHeartbeat, isHeartbeat } from "./heartbeat.ts";

/** Ignores the signals that a whole process group gets: the parent says when to end. */
export function leaveSignalsToParent(): void {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => {});
}

/** Opens the channel to the parent, and answers its heartbeat. */
export function openParentChannel<Own extends Calls, Other extends Calls, Failure>(
  handlers: Handlers<Own>,
  errors: ErrorCodec<Failure>,
): Channel<Own, Other, Failure> {
  const parent = new Channel<Own, Other, Failure>({
    handlers,
    errors,
    send(message) {
      if (process.connected) process.send?.(message, undefined, undefined, () => {});
    },
  });
  answerHeartbeat();
  process.on("message", (message: Message<Own, Failure>) => {
    if (!isHeartbeat(message)) parent.receive(message);
  });
  return parent;
}
