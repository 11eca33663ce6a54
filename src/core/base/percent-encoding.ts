export const percentEncode =
  "percent-encode special characters in the user and password, such as @ (%40), / (%2F), # (%23), ? (%3F) and % (%25)";

/**
 * False if a character of the user or password may end them, as in `app:p@ss/word@host`: parsers
 * would use a piece of the password as the host.
 */
export function isPercentEncoded(url: string): boolean {
  return /^[a-z]+:\/\/(?:[^@/?#]*@)?[^@#]*$/i.test(url) && !/%(?![0-9a-f]{2})/i.test(url);
}
