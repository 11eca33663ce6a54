import type { IncomingMessage } from "node:http";
import type { AccessRules } from "../access/access-rules.ts";
import type { ListenAddress } from "../config/addresses.ts";
import type { LoginContext } from "../identity/login.ts";
import type { PasswordRule } from "../identity/password.ts";
import type { LiveRevocations } from "../identity/revocations.ts";
import type { LoginOrigin } from "../identity/throttle.ts";
import type { ConfiguredClient } from "../oauth/server/options.ts";
import type { StateStore } from "../oauth/server/state-store.ts";
import type { Log } from "../observe/log.ts";
import type { Grammar } from "../query/grammar.ts";

/** A place that queries go to. */
export interface UpstreamState {
  /** As the configuration names it. */
  readonly name: string;
  readonly isUp: boolean;
  /** Connections that carry a query. */
  readonly busy: number;
}

/** What the gateway is by now, besides its users and grants. */
export interface GatewayState {
  readonly version: string;
  readonly upstreams: readonly UpstreamState[];
  /** True while the signing keys on disk are not those in force. */
  readonly keysStale: boolean;
  readonly algorithm: string;
  /** The key that signs. */
  readonly signer: string;
  /** Those that verify, the one that signs among them; empty for a symmetric algorithm. */
  readonly verifiers: readonly string[];
}

/** What the console is given by the gateway that it belongs to. */
export interface ConsoleOptions {
  readonly listen: ListenAddress;
  /** How browsers reach it behind a front; empty for this machine alone. */
  readonly publicUrl: string;
  /** How clients reach the gateway. */
  readonly gatewayUrl: string;
  /** Milliseconds in which a request must have arrived whole. */
  readonly requestTimeout: number;
  readonly access: AccessRules;
  readonly revocations: LiveRevocations;
  readonly login: LoginContext;
  readonly passwordRule: PasswordRule;
  readonly originOf: (request: IncomingMessage) => LoginOrigin;
  readonly state: () => Promise<GatewayState>;
  /** What queries are read by, and whether `gatehouse engine` is behind. */
  readonly queries: { readonly grammar: Grammar; readonly isEngine: boolean };
  /** What the embedded authorization server remembers; undefined if there is none. */
  readonly applications: StateStore | undefined;
  /** The clients that the operator has named in the configuration. */
  readonly clients: readonly ConfiguredClient[];
  /** For the audit; `fields` never hold a secret. */
  readonly onEvent: (name: string, fields: Readonly<Record<string, unknown>>) => void;
  readonly log: Log;
}
