import type { Call, ErrorCodec } from "../../core/base/ipc.ts";
import type { QueryLimit } from "../../core/query/limits.ts";
import { EngineRefusal } from "../refusal.ts";
import type { Answer, RowFormat } from "../spool.ts";
import type { SchemaPath } from "../store.ts";

interface LimitedBody {
  readonly body: Uint8Array;
  /** True if a cell or value may be an object, whose source matters. */
  readonly hasObjects: boolean;
  readonly limits: readonly QueryLimit[];
}

export type Work =
  | ({ readonly kind: "query" } & LimitedBody)
  | ({ readonly kind: "rows"; readonly format: RowFormat } & LimitedBody)
  | { readonly kind: "schema"; readonly path: SchemaPath };

export interface Task {
  readonly work: Work;
  /** File for a long answer. The engine always removes it. */
  readonly spoolPath: string;
}

export type EngineCalls = {
  /** Parses the body of the task that `run` then runs. */
  readonly parse: Call<Task, undefined>;
  /**
   * Runs a task, or else the one that was parsed last. The descriptor of a file in the answer stands
   * for the one at the task's path.
   */
  readonly run: Call<Task | undefined, Answer>;
  readonly forget: Call<string, undefined>;
};

export type WorkerCalls = {
  /** Bytes of streamed rows in the file, and the number of rows that have begun. */
  readonly spilled: Call<{ readonly byteLength: number; readonly rows: number }, undefined>;
  /** Sent just before the commit. */
  readonly committing: Call<undefined, undefined>;
};

export type TaskFailure =
  | Pick<EngineRefusal, "code" | "message" | "plain" | "members" | "incident" | "constraint">
  | { readonly error: unknown };

export const taskErrors: ErrorCodec<TaskFailure> = {
  encode(error) {
    if (!(error instanceof EngineRefusal)) return { error };
    const { code, message, plain, members, incident, constraint } = error;
    return { code, message, plain, members, incident, constraint };
  },
  decode(failure) {
    if ("code" in failure) {
      const { code, message, ...options } = failure;
      return new EngineRefusal(code, message, options);
    }
    return failure.error instanceof Error ? failure.error : new Error(String(failure.error));
  },
};
