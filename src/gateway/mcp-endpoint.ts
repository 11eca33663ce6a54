import type { PrincipalSources } from "../mcp/authenticate.ts";
import type { AuthorizationServer } from "../oauth/server/options.ts";
import type { Exchange } from "./exchange.ts";

/** The protected resource `/mcp`, once the gateway knows its own URL. */
export interface McpEndpoint {
  readonly sources: PrincipalSources;
  /** The embedded authorization server; undefined where external ones are configured. */
  readonly authorizationServer: AuthorizationServer | undefined;
  /** The issuers that the resource's metadata names. */
  readonly issuers: readonly string[];
  /** Answers an authenticated request. @param body undefined for GET and DELETE */
  handle(exchange: Exchange, body: Buffer | undefined): Promise<void>;
}
