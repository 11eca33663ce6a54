import type { IncomingMessage } from "node:http";
import type { AccessRules } from "../access/access-rules.ts";
import type { EntryPoint } from "../access/grant.ts";
import type { Change } from "../access/record-change.ts";
import type { Decision } from "../access/rights.ts";
import type { Subject } from "../access/roles.ts";
import type { Snapshot } from "../access/snapshot.ts";
import type { Approval, ApprovalStore } from "../approvals/approval.ts";
import type { NoPreview, ShownRows } from "../approvals/preview.ts";
import type { ListenAddress } from "../config/addresses.ts";
import type { KeyFacts } from "../identity/key-ring.ts";
import type { LoginContext } from "../identity/login.ts";
import type { PasswordRule } from "../identity/password.ts";
import type { LiveRevocations } from "../identity/revocations.ts";
import type { LoginOrigin } from "../identity/throttle.ts";
import type { ConfiguredClient } from "../oauth/server/options.ts";
import type { StateStore } from "../oauth/server/state-store.ts";
import type { AuditedChange } from "../observe/audit-line.ts";
import type { Log } from "../observe/log.ts";
import type { Access } from "../query/query.ts";
import type { StoreStatus } from "../store/open.ts";
import type { LoadedVersion } from "./access-history.ts";
import type { HeldSessions } from "./sessions.ts";

export interface UpstreamState {
  readonly name: string;
  /** The databases on this upstream by name; undefined for the upstream of all others. */
  readonly databases: readonly string[] | undefined;
  readonly isUp: boolean;
  /** False after a failure, while queries go to other upstreams. */
  readonly isLive: boolean;
  /** Connections that carry a query, and queries in the queue. */
  readonly busy: number;
  readonly waiting: number;
}

export interface CertificateState {
  readonly names: string;
  readonly expires: Date;
  readonly failure: string | undefined;
}

/** The shared store as this replica sees it. */
export interface StoreState {
  readonly own: string;
  /** False while the store does not answer. */
  readonly isReached: boolean;
  readonly lag: number;
  /** Undefined while the store does not answer. */
  readonly status: StoreStatus | undefined;
}

/** The current state of the gateway, except users and grants. */
export interface GatewayState {
  readonly version: string;
  /** Why the current configuration file is not in force, if so. */
  readonly configurationFailure: string | undefined;
  readonly upstreams: readonly UpstreamState[];
  readonly algorithm: string;
  readonly keys: readonly KeyFacts[];
  /** Why the stored keys are not in force, if so. */
  readonly keysFailure: string | undefined;
  /** Undefined without TLS. */
  readonly certificate: CertificateState | undefined;
  /** Undefined if all state is in files. */
  readonly store: StoreState | undefined;
}

export interface Explanation {
  readonly allowed: boolean;
  readonly code: string;
  readonly message?: string | undefined;
  readonly query?: { readonly accesses: readonly Access[] };
  readonly decided?: { readonly decisions: readonly Decision[] };
  readonly body?: Buffer;
}

export interface ApprovalDesk {
  /**
   * Runs `work` on the approvals; returns undefined if none was ever requested.
   *
   * @throws Refusal `approvals_failed`, and what `work` throws
   */
  use<Result>(work: (store: ApprovalStore) => Promise<Result>): Promise<Result | undefined>;
  /** Milliseconds for which an approval is valid. */
  readonly wait: number;
  rowsFor(approver: string, approval: Approval, body: Buffer): Promise<ShownRows | NoPreview>;
}

/**
 * State that the consoles of all replicas share, so that each can continue what another has begun.
 */
export interface SharedConsole {
  readonly sessions: HeldSessions;
  readonly formSecret: Uint8Array;
}

/** Schema names that a form suggests; empty lists if the upstream does not tell. */
export interface SchemaNames {
  readonly databases: readonly string[];
  /** Tables of the database that the form names. */
  readonly tables: readonly string[];
  /** Columns of the table, or of the tables that match the pattern. */
  readonly columns: readonly string[];
}

export interface ConsoleOptions {
  readonly listen: ListenAddress;
  /** The URL of the console through a reverse proxy; empty for this machine only. */
  readonly publicUrl: string;
  readonly gatewayUrl: string;
  /** Milliseconds in which a whole request must arrive. */
  readonly requestTimeout: number;
  /** Undefined if sessions belong to this process. */
  readonly shared: SharedConsole | undefined;
  readonly access: AccessRules;
  /** Prefixes of the configured issuers of external users. */
  readonly issuerPrefixes: readonly string[];
  readonly revocations: LiveRevocations;
  readonly login: LoginContext;
  readonly passwordRule: PasswordRule;
  readonly originOf: (request: IncomingMessage) => LoginOrigin;
  readonly state: () => Promise<GatewayState>;
  /** Reads versions from before the start, newest first; undefined if none are kept. */
  readonly earlierVersions: (() => Promise<readonly LoadedVersion[]>) | undefined;
  readonly explain: (user: string, via: EntryPoint, body: Buffer) => Explanation;
  readonly names: (actor: Subject, database: string, table: string) => Promise<SchemaNames>;
  /**
   * Changes users and grants, and writes the change to the audit.
   *
   * @param endsTokensOf a user whose tokens end with the change
   * @returns the state as written
   */
  readonly change: (
    username: string,
    plan: (current: Snapshot) => readonly Change[],
    endsTokensOf?: string,
  ) => Promise<Snapshot>;
  readonly noteChange: (username: string, change: AuditedChange) => void;
  /** Undefined if the audit goes to the log. */
  readonly auditFile: string | undefined;
  readonly approvals: ApprovalDesk;
  /** State of the embedded authorization server; undefined if there is none. */
  readonly applications: StateStore | undefined;
  readonly clients: readonly ConfiguredClient[];
  /** For the audit; `fields` must never hold a secret. */
  readonly onEvent: (
    name: string,
    fields: Readonly<Record<string, unknown>>,
    level: "info" | "warn",
  ) => void;
  readonly log: Log;
}
