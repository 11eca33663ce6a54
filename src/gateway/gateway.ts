import type { AccessRules } from "../access/access-rules.ts";
import type { ApprovalRule } from "../access/rights.ts";
import type { Configuration } from "../config/schema.ts";
import type { Issuers } from "../identity/issuers.ts";
import type { LiveKeyRing } from "../identity/key-store.ts";
import type { LoginContext } from "../identity/login.ts";
import type { PasswordRule } from "../identity/password.ts";
import type { LiveRevocations } from "../identity/revocations.ts";
import type { TokenAuthority } from "../identity/token.ts";
import type { PrincipalSources } from "../mcp/authenticate.ts";
import type { SignIns } from "../oauth/client/sign-ins.ts";
import type { AuthorizationServer } from "../oauth/server/server.ts";
import type { AuthorizationState } from "../oauth/server/state-store.ts";
import type { ActivityRecorder } from "../observe/activity.ts";
import type { Audit } from "../observe/audit.ts";
import type { Log } from "../observe/log.ts";
import type { Metrics } from "../observe/metrics.ts";
import type { Tracing } from "../observe/tracing.ts";
import type { QueryLimit } from "../query/limits.ts";
import type { Query } from "../query/query.ts";
import type { Replica } from "../store/replica.ts";
import type { DatabaseRouting } from "../upstream/backends.ts";
import type { HeaderPolicy } from "../upstream/headers.ts";
import type { SchemaSource } from "../upstream/schema-source.ts";
import type { BodyBudget } from "./body.ts";
import type { ChangeJournal } from "./change-records.ts";
import type { Exchange } from "./exchange.ts";
import type { QueryInterface } from "./query-grammar.ts";
import type { Shared } from "./shared.ts";

/** The protected resource `/mcp`, available once the gateway knows its own URL. */
export interface McpEndpoint {
  readonly sources: PrincipalSources;
  /** Opens the embedded authorization server on first use. Undefined if external issuers replace it. */
  readonly authorizationServer: (() => Promise<AuthorizationServer>) | undefined;
  readonly issuers: readonly string[];
  /** Answers an authenticated request. The body is undefined for GET and DELETE. */
  handle(exchange: Exchange, body: Buffer | undefined): Promise<void>;
}

/** A query as it was received. */
export interface ScannedQuery {
  readonly body: Buffer;
  readonly query: Query;
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
    query: ScannedQuery,
    needed: NeededApproval,
    id: string | undefined,
  ): Promise<readonly QueryLimit[]>;
}

export interface Gateway {
  /** The configuration in force, replaced when the file changes. */
  readonly configuration: Configuration;
  /** The URL for clients, without a trailing slash. */
  readonly publicUrl: string;
  /** The console's URL for browsers. Undefined without a console, or before its port is known. */
  readonly consoleUrl: string | undefined;
  readonly transportHeaders: readonly string[];
  readonly access: AccessRules;
  readonly keys: LiveKeyRing;
  readonly revocations: LiveRevocations;
  /** Undefined if all state is in files. */
  readonly replica: Replica | undefined;
  readonly authorization: AuthorizationState | undefined;
  readonly tokens: TokenAuthority;
  /** Undefined without external issuers. */
  readonly issuers: Issuers | undefined;
  /** Undefined without sign-in through a provider. */
  readonly signIns: SignIns | undefined;
  readonly login: LoginContext;
  readonly passwordRule: PasswordRule;
  readonly shared: Shared;
  readonly queries: QueryInterface;
  readonly budget: BodyBudget;
  readonly headers: HeaderPolicy;
  readonly routing: DatabaseRouting;
  readonly schema: SchemaSource<Exchange>;
  readonly mcp: () => Promise<McpEndpoint>;
  readonly admission: Admission;
  readonly log: Log;
  readonly audit: Audit;
  readonly activity: ActivityRecorder;
  readonly changes: ChangeJournal;
  /** Undefined if metrics are not served. */
  readonly metrics: Metrics | undefined;
  readonly tracing: Tracing | undefined;
}
