import t from "tap";
import { ADMIN_PASSWORD, type Answer } from "../kit/gateway.ts";
import { checkRefusal, type GatewaySetup, openGatewaySetup } from "./kit.ts";

const right = { username: "admin", password: ADMIN_PASSWORD };

function logIn(
  { gateway }: GatewaySetup,
  fields: { username: string; password: string },
  forwardedFor?: string,
): Promise<Answer> {
  const headers: Record<string, string> = { "content-type": "application/json" };
  if (forwardedFor !== undefined) headers["x-forwarded-for"] = forwardedFor;
  return gateway.request("/login", { method: "POST", headers, body: JSON.stringify(fields) });
}

function guess(setting: GatewaySetup, username: string, forwardedFor?: string): Promise<Answer> {
  return logIn(setting, { username, password: "a wrong one" }, forwardedFor);
}

function count(answers: Answer[], status: number): number {
  return answers.filter((answer) => answer.status === status).length;
}

// `test/identity/throttle.test.ts` has every rule.
t.test("after ten failures at any pace, only that user has to wait", async (t) => {
  const setting = await openGatewaySetup(t);
  await setting.gateway.addUser("bob", "ReadOnly");
  const answers = await Promise.all(Array.from({ length: 200 }, () => guess(setting, "admin")));
  t.equal(count(answers, 401), 10);
  t.equal(count(answers, 429) + count(answers, 503), 190);
  for (const answer of [await guess(setting, "admin"), await logIn(setting, right)]) {
    checkRefusal(t, answer, { status: 429, code: "too_many_attempts" });
    const seconds = Number(answer.headers.get("retry-after"));
    t.ok(seconds > 0 && seconds <= 900);
    t.equal(answer.body.message, `Too many failed attempts: try again in ${seconds} seconds`);
  }
  t.equal((await logIn(setting, { username: "bob", password: "bob password" })).status, 200);
});

t.test("an untrusted local proxy causes a warning and is not blocked", async (t) => {
  const setting = await openGatewaySetup(t, { auth: "max_failures_per_address = 5" });
  for (let at = 0; at < 8; at++) {
    t.equal((await guess(setting, `user-${at}`, "203.0.113.9")).status, 401);
  }
  t.equal((await logIn(setting, right, "203.0.113.9")).status, 200);
  const { service } = setting.gateway;
  const line = await service.logged(({ msg }) => String(msg).includes("server.trusted_proxies"));
  t.equal(line.level, "warn");
  const warnings = service.log.filter(({ msg }) => String(msg).includes("server.trusted_proxies"));
  t.equal(warnings.length, 1, "the warning is logged once");
  for (let at = 0; at < 10; at++) await guess(setting, "admin", `203.0.113.${at}`);
  t.equal((await logIn(setting, right, "203.0.113.99")).status, 429, "its headers are not trusted");
});

t.test("clients of a trusted proxy are counted separately", async (t) => {
  const config = '[server]\ntrusted_proxies = ["127.0.0.1", "10.0.0.0/8"]\n';
  const setting = await openGatewaySetup(t, { config, auth: "max_failures_per_address = 5" });
  for (let at = 0; at < 5; at++) await guess(setting, `user-${at}`, "203.0.113.1");
  t.equal((await logIn(setting, right, "203.0.113.1")).status, 429);
  t.equal((await logIn(setting, right, "203.0.113.2")).status, 200);
  const chain = await logIn(setting, right, "198.51.100.7, 203.0.113.1, 10.1.2.3");
  t.equal(chain.status, 429, "an address written by the client is not trusted");
  for (let at = 0; at < 5; at++) await guess(setting, `user-${at}`, `2001:db8::${at}`);
  t.equal((await logIn(setting, right, "2001:db8::ffff")).status, 429, "a /64 is one client");
  t.equal((await logIn(setting, right, "2001:db8:0:1::1")).status, 200);
});
