/**
 * Codes and refresh tokens that are sent to two replicas at once.
 *
 *     node test/store/token-races.test.ts --times 10000
 */
import { randomBytes } from "node:crypto";
import { parseArgs } from "node:util";
import t from "tap";
import { epochSeconds } from "../../src/core/base/clock.ts";
import { hashId } from "../../src/core/base/sealed-bytes.ts";
import { sharedServer } from "../engine/postgres/kit.ts";
import { send } from "../journeys/mcp.ts";
import { eventually } from "../kit/eventually.ts";
import type { TestGateway } from "../kit/gateway.ts";
import { caseCount } from "../kit/nightly.ts";
import { statelessCall } from "../mcp/messages.ts";
import { authorize, obtainTokens } from "../oauth/flow.ts";
import { postForm } from "../oauth/kit.ts";
import { openOperator } from "./own-replica.ts";
import { openReplicated } from "./round-robin.ts";

const { values } = parseArgs({
  options: { times: { type: "string", default: String(caseCount(24, 200)) } },
});
const times = Number(values.times);
const LANES = 16;

t.setTimeout(3_600_000);
const { store, replicas, balancer } = await openReplicated(t, {
  mcp: "enabled = true",
  server: await sharedServer(),
});
await balancer.addUser("alice", "ReadWrite");
const alice = { username: "alice", password: "alice password" };
const list = statelessCall("tools/list");

function two(round: number): TestGateway[] {
  return replicas.filter((_, at) => at !== round % replicas.length);
}

/** Runs `once` for each round, in several lanes. */
async function run(once: (round: number, lane: number) => Promise<void>): Promise<void> {
  let next = 0;
  const lane = async (_: unknown, number: number) => {
    while (next < times) await once(next++, number);
  };
  await Promise.all(Array.from({ length: LANES }, lane));
}

/** Lets a user consent once. The result makes token requests with copies of that code. */
async function openCodes(): Promise<() => Promise<Record<string, string>>> {
  const { callback, clientId, verifier, redirectUri } = await authorize(balancer, alice);
  const { store: state } = (await openOperator(t, store)).authorization;
  const code = callback.searchParams.get("code") ?? "";
  const issued = JSON.parse((await state.find("AuthorizationCode", hashId(code)))?.payload ?? "");
  const grant = JSON.parse((await state.find("Grant", issued.grantId))?.payload ?? "");

  async function put(model: string, id: string, content: object, grantId?: string): Promise<void> {
    const expires = epochSeconds() + 60;
    const payload = JSON.stringify({ ...content, exp: expires });
    await state.put(model, id, { payload, grantId, uid: undefined, expires });
  }

  return async () => {
    const [next, grantId] = [randomBytes(32), randomBytes(32)].map((id) =>
      id.toString("base64url"),
    );
    if (next === undefined || grantId === undefined) throw new Error("no ids");
    await put("Grant", grantId, { ...grant, jti: grantId });
    await put("AuthorizationCode", hashId(next), { ...issued, grantId }, grantId);
    return {
      grant_type: "authorization_code",
      client_id: clientId,
      code: next,
      code_verifier: verifier,
      redirect_uri: redirectUri,
      resource: `${balancer.url}/mcp`,
    };
  };
}

type Answered = Awaited<ReturnType<typeof postForm>>;

const unreachable: Answered = { status: 503, body: {}, headers: new Headers() };

/**
 * Sends a token request to two replicas at once. On a busy machine, a replica may lose its store or
 * close an idle connection that the request uses.
 */
function race(round: number, form: Record<string, string>): Promise<Answered[]> {
  const send = ({ url }: TestGateway) =>
    postForm(`${url}/oauth/token`, form).catch(() => unreachable);
  return Promise.all(two(round).map(send));
}

function isUnreachable({ status }: Answered): boolean {
  return status === unreachable.status;
}

t.test("of two replicas that receive a code at once, one issues tokens", async (t) => {
  const makeCode = await openCodes();
  const found = { won: 0, ended: 0, disagreed: 0, unreachable: 0 };
  await run(async (round) => {
    const answers = await race(round, await makeCode());
    const won = answers.filter(({ status }) => status === 200);
    const lost = answers.filter(({ body }) => body.error === "invalid_grant");
    if (won.length === 1 && lost.length === 1) found.won++;
    else if (won.length < 2 && answers.some(isUnreachable)) found.unreachable++;
    if (round % 8 > 0) return;
    // A reused code ends its tokens, at all replicas or at none.
    const token = String(won[0]?.body.access_token);
    const judge = (replica: TestGateway) => send(replica, list, token).catch(() => unreachable);
    const judged = await Promise.all(two(round).map(judge));
    const statuses = new Set(judged.map(({ status }) => status));
    if (statuses.has(200) && statuses.has(401)) found.disagreed++;
    else if (statuses.has(401)) found.ended++;
  });
  t.comment(JSON.stringify({ times, ...found }));
  t.match(found, { won: times - found.unreachable, disagreed: 0 });
  t.ok(found.unreachable < times / 2);
});

t.test("a refresh token works at two replicas at once", async (t) => {
  const found = { answered: 0, distinct: 0, unreachable: 0 };
  const families: Awaited<ReturnType<typeof obtainTokens>>[] = [];
  await eventually("each has a family of its own", async () => {
    const family = await obtainTokens(balancer, alice).catch(() => undefined);
    if (family !== undefined) families.push(family);
    return families.length === LANES;
  });
  await run(async (round, lane) => {
    const { clientId, refreshToken } = families[lane] ?? { clientId: "", refreshToken: "" };
    const answers = await race(round, {
      grant_type: "refresh_token",
      client_id: clientId,
      refresh_token: refreshToken,
      resource: `${balancer.url}/mcp`,
    });
    const tokens = answers.flatMap(({ body }) => body.refresh_token ?? []).map(String);
    if (tokens.length === 2) found.answered++;
    else if (answers.some(isUnreachable)) found.unreachable++;
    if (new Set([...tokens, refreshToken]).size === 3) found.distinct++;
    const [next] = tokens;
    const family = families[lane];
    if (family !== undefined && next !== undefined)
      families[lane] = { ...family, refreshToken: next };
  });
  t.comment(JSON.stringify({ times, ...found }));
  const answered = times - found.unreachable;
  t.match(found, { answered, distinct: answered });
  t.ok(found.unreachable < times / 2);
  const text = await store.good(["token", "list", "--json"]);
  const listed: { client: string }[] = JSON.parse(text).apps;
  for (const { clientId } of families) {
    t.equal(listed.filter(({ client }) => client === clientId).length, 1, "one family");
  }
});
