import type { Subject } from "../access/subject.ts";
import type { McpScope } from "../oauth/server/protocol.ts";

/** Who calls `/mcp`, whatever authorization server its token came from. */
export interface Principal {
  /** The user, and what its token is limited to. */
  readonly subject: Subject;
  readonly scopes: ReadonlySet<McpScope>;
  readonly tokenId: string;
  /** The OAuth client that its token was issued to. */
  readonly clientId?: string | undefined;
  /** Epoch seconds. */
  readonly expiresAt: number;
  /**
   * Looks again whether the token would be accepted now: for streams that stay open.
   *
   * @throws Refusal `token_expired`, `token_revoked` or `user_gone`
   */
  requireStillGood(): void;
  /** Notes a tool that was called, where the user is to see what an app does. */
  noteCall?(tool: string): void;
}
