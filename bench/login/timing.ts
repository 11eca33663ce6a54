import { PlainBrowser } from "../../test/oauth/browser.ts";
import { authorizeUrl, makePkce, registered } from "../../test/oauth/kit.ts";
import { post } from "./client.ts";
import { mannWhitney, median } from "./statistics.ts";

/** Sends one login that is refused and returns its milliseconds. */
type Attempt = (username: string) => Promise<number>;

/** Refusal times of one kind of user, compared with those of a wrong password. */
export interface TimingFigure {
  readonly door: string;
  readonly user: string;
  readonly samples: number;
  readonly medianMs: number;
  /** The probability of such a difference by chance (Mann-Whitney, two-sided). */
  readonly p: number | undefined;
}

const users = ["known", "imported", "disabled", "machine", "unknown"];
const WRONG = "a wrong password";

export function loginDoor(url: string): Attempt {
  return async (username) => {
    const body = JSON.stringify({ username, password: WRONG });
    const { status, ms } = await post(`${url}/login`, body);
    if (status !== 401) throw new Error(`/login answered ${status}`);
    return ms;
  };
}

/** Refused logins at the page of the authorization server, in one visit. */
export async function pageDoor(url: string): Promise<Attempt> {
  const browser = new PlainBrowser(url);
  const parameters = { client_id: await registered({ url }), code_challenge: makePkce().challenge };
  const page = await browser.open(authorizeUrl({ url }, parameters));
  return async (username) => {
    const start = performance.now();
    const { status } = await browser.submit(page, { username, password: WRONG, action: "login" });
    const ms = performance.now() - start;
    if (status !== 401) throw new Error(`the login page answered ${status}`);
    return ms;
  };
}

function shuffled<T>(items: readonly T[]): T[] {
  return items
    .map((item) => ({ item, at: Math.random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ item }) => item);
}

/** Tries every kind of user in each round in random order, so that drift affects all alike. */
export async function compareTimes(
  door: string,
  attempt: Attempt,
  rounds: number,
): Promise<TimingFigure[]> {
  const times = new Map<string, number[]>(users.map((user) => [user, []]));
  for (const user of users) await attempt(user);
  for (let round = 0; round < rounds; round++) {
    for (const user of shuffled(users)) times.get(user)?.push(await attempt(user));
  }
  const reference = times.get("known") ?? [];
  return Array.from(times, ([user, sample]) => ({
    door,
    user,
    samples: sample.length,
    medianMs: median(sample),
    p: sample === reference ? undefined : mannWhitney(sample, reference),
  }));
}
