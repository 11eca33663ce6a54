import type { Call, ErrorCodec } from "../../ipc/channel.ts";
import type { QueryLimit } from "../limits.ts";
import { EngineRefusal } from "../refusal.ts";
import type { RowForm, SpooledAnswer } from "../spool.ts";
import type { SchemaPlace } from "../store.ts";

/** What the engine asks of its workers. */

/**
 * What there is to do: a query that the grammar allows, one whose rows go out while others are still
 * to come, or a look at a database's schema.
 */
export type Work =
  | { readonly kind: "query"; readonly body: Uint8Array; readonly limits: readonly QueryLimit[] }
  | {
      readonly kind: "rows";
      readonly body: Uint8Array;
      readonly form: RowForm;
      readonly limits: readonly QueryLimit[];
    }
  | { readonly kind: "schema"; readonly place: SchemaPlace };

/** Work for one worker. */
export interface Task {
  readonly work: Work;
  /** Where the answer goes if it is long; the engine removes the file, whatever happens. */
  readonly spoolPath: string;
}

/** What a worker is asked, by name. */
export type EngineCalls = {
  readonly run: Call<Task, SpooledAnswer>;
  /** Closes a database's file. */
  readonly forget: Call<string, undefined>;
};

/** What the engine is told by a worker, by name. */
export type WorkerCalls = {
  /** So many bytes of the rows are in the file. */
  readonly spilled: Call<number, undefined>;
  /** The change is committed now. */
  readonly committing: Call<undefined, undefined>;
};

/** How a task failed: refused, or by an error as it was thrown. */
export type TaskFailure =
  | Pick<EngineRefusal, "code" | "message" | "plain" | "members">
  | { readonly error: unknown };

/** Keeps refusals as they are, and of any other error all that a log can tell. */
export const taskErrors: ErrorCodec<TaskFailure> = {
  encode(error) {
    if (!(error instanceof EngineRefusal)) return { error };
    const { code, message, plain, members } = error;
    return { code, message, plain, members };
  },
  decode(failure) {
    if ("code" in failure) {
      const { code, message, plain, members } = failure;
      return new EngineRefusal(code, message, { plain, members });
    }
    return failure.error instanceof Error ? failure.error : new Error(String(failure.error));
  },
};
