const HOUR = 3600;
const DAY = 24 * HOUR;

/** How long things live, in seconds. */
export const lifetimes = {
  /** From the redirect to the token request. */
  code: 60,
  /** From the authorization request to the user's answer. */
  interaction: HOUR / 2,
  /** A login in the browser; consent is asked for every time all the same. */
  session: 8 * HOUR,
  /** An access token at most. */
  accessToken: HOUR,
  /** A refresh token that is not used; each use makes a new one. */
  refreshToken: 30 * DAY,
  /** After its first use a refresh token is taken again: calls at one moment refresh each. */
  refreshReuse: 10,
  /** After this the user is asked again, whatever was refreshed. */
  grant: 180 * DAY,
  /** The least that a client's document is kept, so that a user's visit needs it once. */
  clientDocument: HOUR / 2,
  /** A registered client that no user has let in yet. */
  unusedClient: DAY,
  /** A registered client, after each token that it got. */
  usedClient: 90 * DAY,
} as const;
