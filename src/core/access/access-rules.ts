import type { Author } from "../observe/audit-line.ts";
import type { AccessDiff } from "./diff.ts";
import type { AccessProblem } from "./parse.ts";
import type { Change } from "./record-change.ts";
import type { Snapshot } from "./snapshot.ts";

/**
 * Checks a change against the current rules and returns what to change, possibly nothing. Throws a
 * Refusal if the change is not allowed. May be called more than once.
 */
export type Plan = (current: Snapshot) => readonly Change[];

/** Versions of the access file before and after a program's change. */
export interface VersionStep {
  readonly from: string;
  readonly to: string;
}

export interface ChangeOptions {
  /** Allow the change even if it removes a database's last Owner or the last administrator. */
  readonly force?: boolean;
  /**
   * Runs before the change is written. If it fails, nothing is changed.
   *
   * @param step undefined for the rules of a store
   */
  readonly beforeWrite?:
    | ((changes: readonly Change[], step?: VersionStep) => Promise<void>)
    | undefined;
  readonly author?: Author | undefined;
}

export interface WrittenChange {
  readonly snapshot: Snapshot;
  readonly changes: readonly Change[];
}

export type ReloadEvent =
  | {
      readonly kind: "loaded";
      readonly previous: Snapshot;
      readonly snapshot: Snapshot;
      readonly diff: AccessDiff;
      readonly author?: Author;
      /** True if the change was made through this object, whose caller reports it. */
      readonly isOwn?: boolean;
    }
  | {
      readonly kind: "failed";
      readonly file: string;
      readonly problems: readonly AccessProblem[];
    };

/** Users and grants in force, from a file (`access-file.ts`) or a store. */
export interface AccessRules {
  /**
   * The last good state, for decisions.
   *
   * @throws Refusal `store_unreachable` if it may be out of date
   */
  readonly snapshot: Snapshot;
  /** Of the last good state, even if it may be out of date. */
  readonly version: string;
  /** True while the snapshot may not match the stored rules. */
  readonly stale: boolean;
  subscribe(listener: (event: ReloadEvent) => void): void;
  /** Reads now. Resolves when the new state is in force or was refused. */
  reload(): Promise<void>;
  /**
   * Makes the change that `plan` returns. When this resolves, it is stored durably and in force in
   * every process of the gateway.
   *
   * @throws Refusal from `plan` or `beforeWrite`, `last_owner`, `last_administrator`,
   * `access_file_read_only`, `access_file_invalid` or `busy`
   */
  change(plan: Plan, options?: ChangeOptions): Promise<WrittenChange>;
  close(): Promise<void>;
}
