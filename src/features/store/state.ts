import type { ReloadEvent } from "../../core/access/access-rules.ts";
import { diffSteps } from "../../core/access/diff.ts";
import { indexHolders, replaceRecords } from "../../core/access/record-change.ts";
import type { Snapshot } from "../../core/access/snapshot.ts";
import { runCooperatively } from "../../core/base/cooperative-scheduling.ts";
import { Turns } from "../../core/base/queues.ts";
import { lineShape, RevocationIndex } from "../../core/identity/revocations.ts";
import { TokenIndex } from "../../core/identity/token.ts";
import { readIssuedToken } from "../../core/identity/token-file.ts";
import type { Database } from "./database.ts";
import {
  FORM,
  type Head,
  type LogEntry,
  parseBoundaries,
  parseRecords,
  readHead,
  StoreContentError,
} from "./log.ts";

/** A version counts as applied when all listeners are done. */
interface StateListener {
  accessChanged?(event: ReloadEvent): void;
  keysChanged?(ring: string): Promise<void>;
}

/** @throws StoreContentError if the log contains a form that this release cannot read */
export function requireReadable({ form }: Pick<Head, "form">): void {
  if (form <= FORM) return;
  throw new StoreContentError(
    `the store has log form ${form}, and this version of Gatehouse reads up to form ${FORM}: upgrade it`,
  );
}

/** The shared state in memory, as of one version of the log. */
export class SharedState {
  position: Pick<Head, "version" | "id">;
  snapshot: Snapshot;
  readonly revocations: RevocationIndex;
  readonly tokens: TokenIndex;
  readonly listeners: StateListener[] = [];
  readonly own: Set<string> = new Set();
  #revokedUsers: ReadonlyMap<string, number> | undefined;
  readonly #applications = new Turns();

  private constructor(
    head: Head,
    snapshot: Snapshot,
    revocations: RevocationIndex,
    tokens: TokenIndex,
  ) {
    this.position = head;
    this.snapshot = snapshot;
    this.revocations = revocations;
    this.tokens = tokens;
  }

  /** @throws Refusal `store_unreachable`, or StoreContentError if this release cannot read it */
  static async load(database: Database): Promise<SharedState> {
    const [head, users, boundaries, revocations, tokens] = await database.transaction(
      async (query) => {
        const head = await readHead(query);
        requireReadable(head);
        const users = await query("select record from gatehouse.users order by position");
        const [row] = await query("select records from gatehouse.boundaries");
        const revoked = "select data from gatehouse.log where kind = 'revocation' order by version";
        const issued = "select data from gatehouse.log where kind = 'token' order by version";
        return [head, users, row?.records, await query(revoked), await query(issued)] as const;
      },
      "repeatable read",
    );
    const records = users.map(({ record }) => parseRecords(record));
    const access = indexHolders(records, parseBoundaries(boundaries), String(head.accessVersion));
    const revoked = revocations.map(({ data }) => lineShape.parse(data));
    const issued = new TokenIndex(tokens.map(({ data }) => readIssuedToken(data)));
    const index = new RevocationIndex(revoked);
    return new SharedState(head, await runCooperatively(access), index, issued);
  }

  /** Earliest valid issue time of every user with a revocation. Each change makes a new map. */
  get revokedUsers(): ReadonlyMap<string, number> {
    this.#revokedUsers ??= new Map(this.revocations.users);
    return this.#revokedUsers;
  }

  apply(entries: readonly LogEntry[]): Promise<void> {
    return this.#applications.run(async () => {
      for (const entry of entries)
        if (entry.version > this.position.version) await this.#applyOne(entry);
    });
  }

  async #applyOne({ version, id, author, change }: LogEntry): Promise<void> {
    const isOwn = this.own.delete(id);
    if (change.kind === "access") {
      const previous = this.snapshot;
      const replaced = replaceRecords(previous, change.replacement, String(version));
      const snapshot = await runCooperatively(replaced);
      const diff = await runCooperatively(diffSteps(previous, snapshot));
      this.snapshot = snapshot;
      for (const listener of this.listeners) {
        listener.accessChanged?.({ kind: "loaded", previous, snapshot, diff, author, isOwn });
      }
    } else if (change.kind === "revocation") {
      this.revocations.add(change.revocation);
      this.#revokedUsers = undefined;
    } else if (change.kind === "token") {
      this.tokens.add(change.token);
    } else {
      for (const listener of this.listeners) await listener.keysChanged?.(change.ring);
    }
    this.position = { version, id };
  }
}
