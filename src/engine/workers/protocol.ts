/** What the engine and its workers say to each other. */

import type { RefusalCode } from "../refusal.ts";
import type { SpooledAnswer } from "../spool.ts";
import type { SchemaPlace } from "../store.ts";

/** What there is to do: a query that the grammar allows, or a look at a database's schema. */
export type Work =
  | { readonly kind: "query"; readonly body: Uint8Array }
  | { readonly kind: "schema"; readonly place: SchemaPlace };

/** Work for one worker, which answers it with one `Outcome`. */
export interface Task {
  readonly kind: "task";
  readonly work: Work;
  /** Where the answer goes if it is long; the engine removes the file, whatever happens. */
  readonly spoolPath: string;
}

/** What a worker is told; to forget a database means to close its file, and is not answered. */
export type Order = Task | { readonly kind: "forget"; readonly database: string };

/** How a task ended. */
export type Outcome =
  | { readonly kind: "done"; readonly answer: SpooledAnswer }
  | { readonly kind: "refused"; readonly code: RefusalCode; readonly message: string }
  | { readonly kind: "failed"; readonly error: unknown };
