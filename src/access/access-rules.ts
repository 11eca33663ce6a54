import type { AccessDiff } from "./diff.ts";
import type { AccessProblem } from "./parse.ts";
import type { Change } from "./record-change.ts";
import type { Snapshot } from "./snapshot.ts";

/**
 * Judges the rules as they are when nobody else changes them, and says what to change; throws a
 * Refusal if the change may not be made. No change at all is a fine answer. It may be asked again.
 */
export type Plan = (current: Snapshot) => readonly Change[];

export interface ChangeOptions {
  /** Also where the last Owner of a database or the last administrator would be lost. */
  readonly force?: boolean;
  /** What must be on disk before the change is. If it fails, nothing is changed. */
  readonly beforeWrite?: (() => Promise<void>) | undefined;
  /** Who makes the change, where that is noted with it. */
  readonly author?: Author | undefined;
}

/**
 * Who is behind a change: the caller of the interface, the console's user, the user of a command, or
 * a replica.
 */
export interface Author {
  readonly kind: "api" | "console" | "cli" | "store";
  readonly name: string;
}

/** What became of a new state of the rules. */
export type ReloadEvent =
  | {
      readonly kind: "loaded";
      readonly previous: Snapshot;
      readonly snapshot: Snapshot;
      readonly diff: AccessDiff;
      /** Who has made the change, where that is known. */
      readonly author?: Author;
      /** True if it was made through these very rules, so that their caller tells of it. */
      readonly isOwn?: boolean;
    }
  | {
      readonly kind: "failed";
      /** Where they are held. */
      readonly file: string;
      /** All that is wrong, in the order of the file; at least one. */
      readonly problems: readonly AccessProblem[];
    };

/**
 * Users and grants in force, wherever they are held: the access file is one such place
 * (`access-file.ts`), and what it looks like concerns nobody else.
 */
export interface AccessRules {
  /**
   * The state to decide by: the last good one.
   *
   * @throws Refusal `store_unreachable` if it may be out of date
   */
  readonly snapshot: Snapshot;
  /** The version of that state, whether it may be decided by or not. */
  readonly version: string;
  /** True while what is held is not what is in force. */
  readonly stale: boolean;
  /** Calls `listener` after each reload, whatever it came to. */
  subscribe(listener: (event: ReloadEvent) => void): void;
  /** Reads now; resolves when what is held is in force or was refused. */
  reload(): Promise<void>;
  /**
   * Makes the change that `plan` says. When this resolves, it is held for good and in force in
   * every process of the gateway.
   *
   * @returns the state as it was written
   * @throws Refusal from `plan` or `beforeWrite`, `last_owner`, `last_administrator`,
   *   `access_file_read_only`, `access_file_invalid` or `busy`
   */
  change(plan: Plan, options?: ChangeOptions): Promise<Snapshot>;
  close(): Promise<void>;
}
