import { UsageError } from "./outcome.ts";

/** RFC 9562, section 4. */
const uuid = /^[\da-f]{8}-(?:[\da-f]{4}-){3}[\da-f]{12}$/;
/** How the embedded authorization server names the access tokens that it issues. */
const accessTokenId = /^[\w-]{43}$/;
/** Header, payload and signature (RFC 7519, section 3). */
const wholeToken = /^[\w-]+\.[\w-]+\.[\w-]*$/;

/**
 * Reads the id of a token as the revocations hold it; nothing else is taken, since a revocation of
 * what is no id would look like one and revoke nothing.
 *
 * @throws UsageError, which never repeats the text: it may be a token
 */
export function readTokenId(text: string): string {
  const lowerCased = text.toLowerCase();
  if (uuid.test(lowerCased)) return lowerCased;
  if (accessTokenId.test(text)) return text;
  if (wholeToken.test(text)) {
    throw new UsageError("that is a whole token: give its id, the jti in it, not the token itself");
  }
  throw new UsageError(
    "that is no token's id; allowed: a UUID such as 0b9c3bd1-8f3f-4a57-9a3c-5f3d3a1c7a43, " +
      "or the 43 characters that name an access token for MCP",
  );
}
