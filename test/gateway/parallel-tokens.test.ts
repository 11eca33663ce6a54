import t from "tap";
import { staffedHome, tokenOf } from "../journeys/staff.ts";
import { startGateway } from "../kit/gateway.ts";

t.test("of many requests at one time, each is answered by its own token", async (t) => {
  const names = Array.from({ length: 20 }, (_, at) => `user${at}`);
  const home = await staffedHome(
    t,
    names.map((name) => `${name} main ReadOnly`),
  );
  const gateway = await startGateway(t, { home, upstream: "http://127.0.0.1:1" });
  const tokens = await Promise.all(names.map((name) => tokenOf(gateway, name)));
  const answers = tokens.flatMap((token, at) => [
    { token, said: { user: { username: names[at] } } },
    { token: `${token.slice(0, -9)}${token.slice(-8)}`, said: { code: "token_invalid" } },
  ]);
  const asked = answers.map(async ({ token, said }) => {
    const headers = { authorization: `Bearer ${token}` };
    const response = await fetch(`${gateway.url}/api/me`, { headers });
    t.match(await response.json(), said);
  });
  await Promise.all(asked);
});
