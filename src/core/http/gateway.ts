import type { AccessRules } from "../access/access-rules.ts";
import type { ApprovalRule, CountRequests } from "../access/rights.ts";
import type { Configuration } from "../config/schema.ts";
import type { ExternalIssuers } from "../identity/authenticate.ts";
import type { Hashing } from "../identity/hashing.ts";
import type { LiveKeyRing } from "../identity/key-store.ts";
import type { LoginContext } from "../identity/login.ts";
import type { PasswordRule } from "../identity/password.ts";
import type { LiveRevocations } from "../identity/revocations.ts";
import type { LoginThrottle } from "../identity/throttle.ts";
import type { LiveTokenInventory, TokenAuthority } from "../identity/token.ts";
import type { VerifiedPasswords } from "../identity/verified-passwords.ts";
import type { ActivityRecorder } from "../observe/activity.ts";
import type { Audit } from "../observe/audit.ts";
import type { Log } from "../observe/log.ts";
import type { Metrics, StoreMetrics } from "../observe/metrics.ts";
import type { Tracing } from "../observe/tracing.ts";
import type { Grammar } from "../query/grammar.ts";
import type { QueryLimit } from "../query/limits.ts";
import type { ParsedQuery } from "../query/query.ts";
import type { DatabaseRouting } from "../upstream/database.ts";
import type { HeaderPolicy } from "../upstream/headers.ts";
import type { BodyBudget } from "./body.ts";
import type { ChangeJournal } from "./change-records.ts";
import type { Exchange } from "./exchange.ts";

export interface QueryInterface {
  readonly grammar: Grammar;
  readonly isEngine: boolean;
}

/** Exists once per gateway, even with several processes. */
export interface Shared {
  readonly throttle: LoginThrottle;
  readonly hashing: Hashing;
  readonly countRequests: CountRequests;
  configure(configuration: Configuration): void;
  condition(): Promise<Condition>;
  note(change: Partial<Condition>): void;
}

export interface Condition {
  /** The reason why the current configuration file is not in force, if so. */
  readonly configurationFailure: string | undefined;
  /** True from `server.shutdown_delay` before the gateway stops accepting connections. */
  readonly isEnding: boolean;
}

/** The lease of a process that decides by a state shared with others. */
interface Lease extends StoreMetrics {
  readonly isFresh: boolean;
  /** @throws Refusal `store_unreachable` */
  requireFresh(): void;
}

/** Why the caller's grants do not allow a query by themselves. */
export interface NeededApproval {
  readonly rules: readonly ApprovalRule[];
  readonly basis: string;
}

/** Decides on queries that the caller's grants do not allow by themselves. */
export interface Admission {
  /** True if queries of the caller may have to wait. */
  mayWait(gateway: Gateway, exchange: Exchange): boolean;
  /**
   * @param id of the approval that the caller presents
   * @returns limits for the query in addition to those of the grants
   * @throws Refusal unless the query may run now
   */
  admit(
    gateway: Gateway,
    exchange: Exchange,
    query: ParsedQuery,
    needed: NeededApproval,
    id: string | undefined,
  ): Promise<readonly QueryLimit[]>;
}

export interface Gateway {
  /** The configuration in force, replaced when the file changes. */
  readonly configuration: Configuration;
  /** The path below which the gateway's own paths are. Empty if they are at the root. */
  readonly basePath: string;
  /** The URL for clients, with the base path and without a trailing slash. */
  readonly publicUrl: string;
  readonly transportHeaders: readonly string[];
  readonly access: AccessRules;
  readonly keys: LiveKeyRing;
  readonly revocations: LiveRevocations;
  /** Undefined if all state is in files. */
  readonly lease: Lease | undefined;
  readonly tokens: TokenAuthority;
  /** The tokens that commands have issued. */
  readonly inventory: LiveTokenInventory;
  /** Undefined without external issuers. */
  readonly issuers: ExternalIssuers | undefined;
  readonly login: LoginContext;
  readonly passwords: VerifiedPasswords;
  readonly passwordRule: PasswordRule;
  readonly shared: Shared;
  readonly queries: QueryInterface;
  readonly budget: BodyBudget;
  readonly headers: HeaderPolicy;
  readonly routing: DatabaseRouting;
  /** The version of a foreign upstream, where there is a way to ask. */
  readonly upstreamVersion: (() => Promise<string | undefined>) | undefined;
  readonly admission: Admission;
  readonly log: Log;
  readonly audit: Audit;
  readonly activity: ActivityRecorder;
  readonly changes: ChangeJournal;
  readonly metrics: Metrics | undefined;
  readonly tracing: Tracing | undefined;
}
