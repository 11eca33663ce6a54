import type { IncomingMessage, ServerResponse } from "node:http";
import type { Provider } from "oidc-provider";
import type { CountRequests } from "../../access/rights.ts";
import type { Snapshot } from "../../access/snapshot.ts";
import type { Configuration } from "../../config/schema.ts";
import type { Issuers } from "../../identity/issuers.ts";
import type { LoginContext } from "../../identity/login.ts";
import type { Revocations } from "../../identity/revocations.ts";
import type { LoginOrigin } from "../../identity/throttle.ts";
import type { Log } from "../../observe/log.ts";
import type { FormGuard } from "../../pages/html.ts";
import type { SignIns } from "../client/sign-ins.ts";
import type { DocumentFetch } from "./client-documents.ts";
import type { AuthorizationState, StateStore } from "./state-store.ts";

export type ConfiguredClient = Configuration["mcp"]["clients"][number];

export interface AuthorizationServerOptions {
  /** The gateway's public URL without a trailing slash. */
  readonly issuer: string;
  readonly configuration: Pick<Configuration, "auth" | "mcp">;
  readonly state: AuthorizationState;
  readonly login: LoginContext;
  readonly originOf: (request: IncomingMessage) => LoginOrigin;
  readonly countRequests: CountRequests;
  readonly snapshot: () => Snapshot;
  readonly revocations: Revocations;
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
