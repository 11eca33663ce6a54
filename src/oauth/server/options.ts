import type { IncomingMessage, ServerResponse } from "node:http";
import type { CountRequests } from "../../access/rights.ts";
import type { Snapshot, User } from "../../access/snapshot.ts";
import type { Configuration } from "../../config/schema.ts";
import type { Revocations } from "../../identity/revocations.ts";
import type { LoginOrigin } from "../../identity/throttle.ts";
import type { Log } from "../../observe/log.ts";
import type { DocumentFetch } from "./client-documents.ts";
import type { McpScope } from "./protocol.ts";
import type { AuthorizationState } from "./state-store.ts";

/** A public client that the operator has named in the configuration. */
export type ConfiguredClient = Configuration["mcp"]["clients"][number];

/** What the authorization server is given by the gateway that it is part of. */
export interface AuthorizationServerOptions {
  /** The gateway's public URL, without a closing slash. */
  readonly issuer: string;
  /** The one resource that tokens are for (RFC 8707): the public URL of `/mcp`. */
  readonly resource: string;
  /** Opened and closed by whoever opens the server. */
  readonly state: AuthorizationState;
  readonly clients: readonly ConfiguredClient[];
  /** Schemes without a dot that clients may have redirects of. */
  readonly appSchemes: readonly string[];
  /** Hosts, as they stand in https URLs, whose documents may come from private addresses. */
  readonly privateClientHosts: readonly string[];
  /** Clients that may register from one address in an hour. */
  readonly registrationsPerHour: number;
  /** Seconds that an access token lives. */
  readonly tokenLifetime: number;
  /**
   * Verifies a password, under the same throttle as every other login.
   *
   * @throws Refusal `credentials_invalid`, `too_many_attempts` or `login_busy`
   */
  readonly checkPassword: (
    username: string,
    password: string,
    origin: LoginOrigin,
  ) => Promise<User>;
  readonly originOf: (request: IncomingMessage) => LoginOrigin;
  /** For the limits on what one address may ask for. */
  readonly countRequests: CountRequests;
  readonly snapshot: () => Snapshot;
  readonly revocations: Revocations;
  /** For the audit; `fields` never hold a secret. */
  readonly onEvent: (name: string, fields: Readonly<Record<string, unknown>>) => void;
  readonly log: Log;
  /** Fetches client ID metadata documents; by default over https, with a guard on addresses. */
  readonly fetchDocument?: DocumentFetch;
}

/** What an access token of this server says (RFC 9068); times in epoch seconds. */
export interface AccessToken {
  readonly username: string;
  /** The only database it opens, or `*`. */
  readonly database: string;
  readonly readOnly: boolean;
  readonly scopes: ReadonlySet<McpScope>;
  /** The fingerprint of the password that its user logged in with. */
  readonly credential: string;
  readonly tokenId: string;
  readonly clientId: string;
  readonly issuedAt: number;
  readonly expiresAt: number;
  /**
   * Looks again whether it, or the grant behind it, was revoked: for streams that stay open.
   *
   * @throws Refusal `token_revoked`
   */
  requireStillGranted(): void;
  /** Notes a tool that was called, for the token's user to see. */
  noteCall(tool: string): void;
}

/** The embedded authorization server (OAuth 2.1), as the gateway mounts it. */
export interface AuthorizationServer {
  /** The paths it serves: exact, or with a closing slash everything below. */
  readonly paths: readonly string[];
  handle(request: IncomingMessage, response: ServerResponse): void;
  /** @throws Refusal `token_invalid`, `token_expired` or `token_revoked` */
  verify(token: string): Promise<AccessToken>;
}
