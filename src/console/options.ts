import type { IncomingMessage } from "node:http";
import type { AccessRules } from "../access/access-rules.ts";
import type { EntryPoint } from "../access/grant.ts";
import type { Change } from "../access/record-change.ts";
import type { Decision } from "../access/rights.ts";
import type { Snapshot } from "../access/snapshot.ts";
import type { Subject } from "../access/subject.ts";
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
import type { StoreStatus } from "../store/status.ts";
import type { LoadedVersion } from "./access-history.ts";
import type { HeldSessions } from "./sessions.ts";

/** A place that queries go to. */
export interface UpstreamState {
  /** As the configuration names it. */
  readonly name: string;
  /** The databases that live there by their names; undefined where all others live. */
  readonly databases: readonly string[] | undefined;
  readonly isUp: boolean;
  /** False while queries go to others, since it has failed. */
  readonly isLive: boolean;
  /** Connections that carry a query, and queries in line for one. */
  readonly busy: number;
  readonly waiting: number;
}

/** A certificate by which the gateway speaks TLS itself. */
export interface CertificateState {
  readonly names: string;
  readonly expires: Date;
  /** Why what its files hold by now is not served. */
  readonly failure: string | undefined;
}

/** What replicas share, as one of them sees it. */
export interface StoreState {
  /** This replica's name. */
  readonly own: string;
  /** False while the store does not answer. */
  readonly isReached: boolean;
  /** Versions that this replica has not applied yet. */
  readonly lag: number;
  /** Undefined while the store does not answer. */
  readonly status: StoreStatus | undefined;
}

/** What the gateway is by now, besides its users and grants. */
export interface GatewayState {
  readonly version: string;
  /** Why the configuration's file, as it is by now, is not in force, if so. */
  readonly configurationFailure: string | undefined;
  readonly upstreams: readonly UpstreamState[];
  readonly algorithm: string;
  /** The keys that sign or verify, newest first. */
  readonly keys: readonly KeyFacts[];
  /** Why the keys that are held are not those in force, if so. */
  readonly keysFailure: string | undefined;
  /** Undefined for a gateway that does not speak TLS. */
  readonly certificate: CertificateState | undefined;
  /** Undefined where files hold everything. */
  readonly store: StoreState | undefined;
}

/** What becomes of a query. */
export interface Explanation {
  readonly allowed: boolean;
  /** As the gateway answers it, `allowed` if it is. */
  readonly code: string;
  readonly message?: string | undefined;
  readonly query?: { readonly accesses: readonly Access[] };
  readonly decided?: { readonly decisions: readonly Decision[] };
  /** What goes up, if it does. */
  readonly body?: Buffer;
}

/** What somebody has to approve, and what it would do. */
export interface ApprovalDesk {
  /**
   * Works on the approvals; undefined if none was ever asked for.
   *
   * @throws Refusal `approvals_failed`, and what `work` throws
   */
  use<Result>(work: (store: ApprovalStore) => Promise<Result>): Promise<Result | undefined>;
  /** Milliseconds for which one that is given is good. */
  readonly wait: number;
  /** The rows that a query which waits would touch, for an approver. */
  rowsFor(approver: string, approval: Approval, body: Buffer): Promise<ShownRows | NoPreview>;
}

/** What the consoles of all replicas share, so that each takes what another has begun. */
export interface SharedConsole {
  readonly sessions: HeldSessions;
  /** What the tokens of forms are made of. */
  readonly formSecret: Uint8Array;
}

/** Names of the schema that a form may offer; empty lists where the upstream does not tell. */
export interface SchemaNames {
  readonly databases: readonly string[];
  /** Of the database that the form names. */
  readonly tables: readonly string[];
  /** Of the table, or of those that fit the pattern. */
  readonly columns: readonly string[];
}

/** What the console is given by the gateway that it belongs to. */
export interface ConsoleOptions {
  readonly listen: ListenAddress;
  /** How browsers reach it behind a front; empty for this machine alone. */
  readonly publicUrl: string;
  readonly gatewayUrl: string;
  /** Milliseconds in which a request must have arrived whole. */
  readonly requestTimeout: number;
  /** Undefined where sessions are this process's own. */
  readonly shared: SharedConsole | undefined;
  readonly access: AccessRules;
  /** Of the configured issuers of external users. */
  readonly issuerPrefixes: readonly string[];
  readonly revocations: LiveRevocations;
  readonly login: LoginContext;
  readonly passwordRule: PasswordRule;
  readonly originOf: (request: IncomingMessage) => LoginOrigin;
  readonly state: () => Promise<GatewayState>;
  /** Versions of users and grants from before the start, the newest first; undefined: none are kept. */
  readonly earlierVersions: (() => Promise<readonly LoadedVersion[]>) | undefined;
  /** What becomes of a query, as the gateway would decide on it now. */
  readonly explain: (user: string, via: EntryPoint, body: Buffer) => Explanation;
  /** Names on which `actor` may grant. */
  readonly names: (actor: Subject, database: string, table: string) => Promise<SchemaNames>;
  /**
   * Changes users and grants for somebody, and has the audit tell of it.
   *
   * @param endsTokensOf a user whose tokens end with the change
   * @returns the state as it was written
   */
  readonly change: (
    username: string,
    plan: (current: Snapshot) => readonly Change[],
    endsTokensOf?: string,
  ) => Promise<Snapshot>;
  /** Has the audit tell what somebody has changed besides. */
  readonly noteChange: (username: string, change: AuditedChange) => void;
  /** Where the audit is written; undefined if it goes to the log. */
  readonly auditFile: string | undefined;
  readonly approvals: ApprovalDesk;
  /** What the embedded authorization server remembers; undefined if there is none. */
  readonly applications: StateStore | undefined;
  /** The clients that the operator has named in the configuration. */
  readonly clients: readonly ConfiguredClient[];
  /** For the audit; `fields` never hold a secret. */
  readonly onEvent: (
    name: string,
    fields: Readonly<Record<string, unknown>>,
    level: "info" | "warn",
  ) => void;
  readonly log: Log;
}
