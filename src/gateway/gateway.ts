import type { AccessRules } from "../access/access-rules.ts";
import type { Configuration } from "../config/schema.ts";
import type { LiveKeyRing } from "../identity/key-ring.ts";
import type { LoginContext } from "../identity/login.ts";
import type { PasswordRule } from "../identity/password.ts";
import type { LiveRevocations } from "../identity/revocations.ts";
import type { TokenAuthority } from "../identity/token.ts";
import type { PrincipalSources } from "../mcp/authenticate.ts";
import type { AuthorizationServer } from "../oauth/server/options.ts";
import type { AuthorizationState } from "../oauth/server/state-store.ts";
import type { ActivityNotes } from "../observe/activity.ts";
import type { Audit } from "../observe/audit.ts";
import type { Log } from "../observe/log.ts";
import type { Metrics } from "../observe/metrics.ts";
import type { Tracing } from "../observe/tracing.ts";
import type { ReplicaMetrics } from "../store/replica.ts";
import type { DatabaseRouting } from "../upstream/database-routing.ts";
import type { HeaderPolicy } from "../upstream/headers.ts";
import type { SchemaSource } from "../upstream/schema-source.ts";
import type { BodyBudget } from "./body.ts";
import type { ChangeJournal } from "./change-records.ts";
import type { Exchange } from "./exchange.ts";
import type { Approvals } from "./open-approvals.ts";
import type { QueryInterface } from "./query-grammar.ts";
import type { Shared } from "./shared.ts";

/** The protected resource `/mcp`, once the gateway knows its own URL. */
export interface McpEndpoint {
  readonly sources: PrincipalSources;
  /** Opens the embedded authorization server once; undefined where external ones are configured. */
  readonly authorizationServer: (() => Promise<AuthorizationServer>) | undefined;
  /** The issuers that the resource's metadata names. */
  readonly issuers: readonly string[];
  /** Answers an authenticated request. @param body undefined for GET and DELETE */
  handle(exchange: Exchange, body: Buffer | undefined): Promise<void>;
}

/** A replica: what it shares with others has to be known well enough to decide by it. */
export interface SharedReplica extends ReplicaMetrics {
  /** @throws Refusal `store_unreachable` */
  requireFresh(): void;
}

/** All that a request may need on its way: what lives as long as the gateway does. */
export interface Gateway {
  /** The one in force: another one once the file has changed. */
  readonly configuration: Configuration;
  /** How clients reach the gateway, without a slash at the end. */
  readonly publicUrl: string;
  /** How browsers reach the console; undefined if there is none, or nobody knows its port yet. */
  readonly consoleUrl: string | undefined;
  /** What every answer says of the transport: names and values in turn. */
  readonly transportHeaders: readonly string[];
  readonly access: AccessRules;
  readonly keys: LiveKeyRing;
  readonly revocations: LiveRevocations;
  /** This replica among several; undefined where files hold everything. */
  readonly replica: SharedReplica | undefined;
  /** What the authorization server remembers, where replicas share it. */
  readonly authorization: AuthorizationState | undefined;
  readonly tokens: TokenAuthority;
  readonly login: LoginContext;
  readonly passwordRule: PasswordRule;
  readonly shared: Shared;
  readonly queries: QueryInterface;
  readonly budget: BodyBudget;
  readonly headers: HeaderPolicy;
  readonly routing: DatabaseRouting;
  readonly schema: SchemaSource<Exchange>;
  /** What stands behind `/mcp`; resolves once the gateway listens. */
  readonly mcp: () => Promise<McpEndpoint>;
  readonly approvals: Approvals;
  readonly log: Log;
  readonly audit: Audit;
  /** When users and applications were last there. */
  readonly activity: ActivityNotes;
  /** Which changes of users and grants the audit has. */
  readonly changes: ChangeJournal;
  /** Undefined if nobody reads them. */
  readonly metrics: Metrics | undefined;
  /** Undefined if requests are not traced. */
  readonly tracing: Tracing | undefined;
}
