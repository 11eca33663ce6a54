import type { IncomingMessage, ServerResponse } from "node:http";
import type { Provider } from "oidc-provider";
import type { CountRequests } from "../../../core/access/rights.ts";
import type { FormGuard } from "../../../core/base/html.ts";
import type { Configuration } from "../../../core/config/schema.ts";
import type { LoginContext } from "../../../core/identity/login.ts";
import type { LoginOrigin } from "../../../core/identity/throttle.ts";
import type { Log } from "../../../core/observe/log.ts";
import type { Issuers } from "../../issuers/issuers.ts";
import type { SignIns } from "../client/sign-ins.ts";
import type { DocumentFetch } from "./client-documents.ts";
import type { AccountContext } from "./connections.ts";
import type { AuthorizationState, StateStore } from "./state-store.ts";

export type ConfiguredClient = Configuration["mcp"]["clients"][number];

export interface AuthorizationServerOptions extends AccountContext {
  /** The gateway's public URL without a trailing slash. */
  readonly issuer: string;
  readonly configuration: Pick<Configuration, "auth" | "mcp">;
  readonly state: AuthorizationState;
  readonly login: LoginContext;
  readonly originOf: (request: IncomingMessage) => LoginOrigin;
  readonly countRequests: CountRequests;
  readonly signIns: SignIns | undefined;
  readonly assertions: Pick<Issuers, "verifyAssertion"> | undefined;
  /** For the audit. `fields` never contain a secret. */
  readonly onEvent: (name: string, fields: Readonly<Record<string, unknown>>) => void;
  readonly log: Log;
  /** Default: https with an address check. */
  readonly fetchDocument?: DocumentFetch;
}

export interface PageContext {
  readonly provider: Provider;
  readonly options: AuthorizationServerOptions;
  readonly guard: FormGuard;
  readonly store: StateStore;
}

export interface Visit extends PageContext {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
}
