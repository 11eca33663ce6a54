import type { Call, ErrorCodec } from "../../ipc/channel.ts";
import type { QueryLimit } from "../limits.ts";
import { EngineRefusal } from "../refusal.ts";
import type { Answer, RowForm } from "../spool.ts";
import type { SchemaPath } from "../store.ts";

/**
 * A query that the grammar allows, one whose rows are streamed, or a read of a database's schema.
 */
export type Work =
  | { readonly kind: "query"; readonly body: Uint8Array; readonly limits: readonly QueryLimit[] }
  | {
      readonly kind: "rows";
      readonly body: Uint8Array;
      readonly form: RowForm;
      readonly limits: readonly QueryLimit[];
    }
  | { readonly kind: "schema"; readonly path: SchemaPath };

export interface Task {
  readonly work: Work;
  /** File for a long answer. The engine always removes it. */
  readonly spoolPath: string;
}

export type EngineCalls = {
  /** The descriptor of a file means the one at the task's path. */
  readonly run: Call<Task, Answer>;
  readonly forget: Call<string, undefined>;
};

export type WorkerCalls = {
  /** Number of bytes of the rows that are in the file. */
  readonly spilled: Call<number, undefined>;
  /** Sent just before the change is committed. */
  readonly committing: Call<undefined, undefined>;
};

export type TaskFailure =
  | Pick<EngineRefusal, "code" | "message" | "plain" | "members">
  | { readonly error: unknown };

/** Keeps refusals as they are, and of other errors everything that a log can use. */
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
