import type { Subject } from "../access/policy.ts";

/** What a token may open besides what its user's grants say (RFC 6749, section 3.3). */
export const mcpScopes = ["mcp:tools", "mcp:resources"] as const;
export type McpScope = (typeof mcpScopes)[number];

/** Who calls `/mcp`, whatever authorization server its token came from. */
export interface Principal {
  /** The user, and what its token is limited to. */
  readonly subject: Subject;
  readonly scopes: ReadonlySet<McpScope>;
  readonly tokenId: string;
  /** Epoch seconds. */
  readonly expiresAt: number;
  /**
   * Looks again whether the token would be accepted now: for streams that stay open.
   *
   * @throws Refusal `token_expired`, `token_revoked` or `user_gone`
   */
  requireStillGood(): void;
}
