import t, { type Test } from "tap";
import { openSetting, select, sendRaw } from "../gateway/kit.ts";

const body = JSON.stringify(select);

/** The answer to a query with these header lines, and how many requests reached the database. */
async function openDoor(t: Test) {
  const { gateway, upstream } = await openSetting(t);
  const token = await gateway.login();
  return {
    gateway,
    token,
    async knock(headers: string[], path = "/query") {
      const lines = [`POST ${path} HTTP/1.1`, "Content-Type: application/json", ...headers];
      const { status, head, text } = await sendRaw(gateway.url, lines, body);
      const code = /"code":"(\w+)"/.exec(text)?.[1];
      return { status, code, head, reached: upstream.take().length };
    },
  };
}

t.test(
  "one bearer token in the Authorization header opens, in any case of the scheme",
  async (t) => {
    const { token, knock } = await openDoor(t);
    for (const scheme of ["Bearer", "bearer", "BEARER", "bEaReR"]) {
      t.match(
        await knock([`Authorization: ${scheme} ${token}`]),
        { status: 200, reached: 1 },
        scheme,
      );
    }
    const spaced = [
      `authorization:Bearer ${token}`,
      `AUTHORIZATION:   Bearer ${token}`,
      `Authorization: Bearer   ${token}`,
      `Authorization: Bearer ${token}   `,
      `Authorization:\tBearer ${token}\t`,
    ];
    for (const line of spaced) {
      t.match(await knock([line]), { status: 200, reached: 1 }, JSON.stringify(line.slice(0, 30)));
    }
  },
);

t.test("whatever else stands in the Authorization header is no bearer token", async (t) => {
  const { token, knock } = await openDoor(t);
  const wrong = [
    ...["", "Bearer", "Bearer ", "Bearer null", "Bearer undefined", token, "Bearer."],
    ...[`Bearer${token}`, `Bearer\t${token}`, `Bearer \t${token}`, `Bearer\t ${token}`],
    ...[`Bearer\u00a0${token}`, `Bearer: ${token}`, `Bearer=${token}`, `"Bearer" ${token}`],
    ...[
      `Bearer ${token} x`,
      `Bearer ${token} ${token}`,
      `Bearer ${token}\t${token}`,
      `Bearer ${token};`,
    ],
    ...[`Bearer ${token},`, `Bearer ,${token}`, `Bearer ${token},Bearer ${token}`],
    ...[`Bearer ${token}, Bearer ${token}`, `Basic x, Bearer ${token}`, `Bearer ${token}, Basic x`],
    ...[
      `Bearer "${token}"`,
      `Bearer token="${token}"`,
      `Bearer token=${token}`,
      `Bearer <${token}>`,
    ],
    ...[`Basic ${token}`, `Token ${token}`, `JWT ${token}`, `DPoP ${token}`, `Bearers ${token}`],
    ...[`Bearer Bearer ${token}`, `Basic ${Buffer.from(`admin:${token}`).toString("base64")}`],
    ...[`Bearer ${token.replaceAll(".", "%2E")}`, `Bearer ${encodeURIComponent(`${token} `)}`],
    ...[`Bearer ${token}\u00e9`, `B\u00e9arer ${token}`, `Bearer ${token}=`, `Bearer ${token}==`],
  ];
  for (const value of wrong) {
    const { status, code, head, reached } = await knock([`Authorization: ${value}`]);
    const name = JSON.stringify(value.replaceAll(token, "<token>"));
    t.strictSame(
      { status, code, reached },
      { status: 401, code: "token_invalid", reached: 0 },
      name,
    );
    t.match(head, /^www-authenticate: bearer /im);
  }
});

t.test("a header that the wire does not carry whole is refused", async (t) => {
  const { token, knock } = await openDoor(t);
  const broken = [
    [`Authorization: Bearer ${token}\0`],
    [`Authorization: Bearer\r\n ${token}`],
    [`Authorization : Bearer ${token}`],
    [`Authorization: Bearer ${token}\rX: y`],
    [` Authorization: Bearer ${token}`],
  ];
  for (const headers of broken) {
    const { status, reached } = await knock(headers);
    t.ok(status === 400 || status === 401, JSON.stringify(headers[0]?.slice(0, 30)));
    t.equal(reached, 0);
  }
});

t.test("two Authorization headers are refused, whichever of them is good", async (t) => {
  const { token, knock, gateway } = await openDoor(t);
  const good = `Authorization: Bearer ${token}`;
  const pairs = [
    [good, good],
    [good, "Authorization: Basic eDp5"],
    ["Authorization: Basic eDp5", good],
    [good, "authorization: Bearer x"],
    ["AUTHORIZATION: Bearer x", good],
    [good, "Authorization:"],
    ["Authorization:", good],
    [good, "X-Between: 1", good, good],
  ];
  for (const headers of pairs) {
    const expected = { status: 400, code: "several_authorization_headers", reached: 0 };
    const { status, code, reached } = await knock(headers);
    t.strictSame({ status, code, reached }, expected);
  }
  for (const route of ["GET /api/me", "GET /mcp", "GET /healthz"]) {
    const { status } = await sendRaw(gateway.url, [`${route} HTTP/1.1`, good, good]);
    t.equal(status, 400, route);
  }
});

t.test("a token opens nothing from any other place", async (t) => {
  const { token, knock } = await openDoor(t);
  const places: [headers: string[], path?: string][] = [
    [[], `/query?access_token=${token}`],
    [[], `/query?token=${token}&authorization=Bearer%20${token}`],
    [[`Proxy-Authorization: Bearer ${token}`]],
    [[`X-Authorization: Bearer ${token}`]],
    [[`X-Forwarded-Authorization: Bearer ${token}`]],
    [[`X-Access-Token: ${token}`]],
    [[`Cookie: access_token=${token}; Authorization=Bearer ${token}`]],
    [[`Authentication: Bearer ${token}`]],
    [[`X-Gatehouse-User: admin`, "X-Gatehouse-Role: Owner"]],
  ];
  for (const [headers, path] of places) {
    const { status, code, reached } = await knock(headers, path);
    const name = `${headers} ${path ?? ""}`.replaceAll(token, "<token>");
    t.strictSame(
      { status, code, reached },
      { status: 401, code: "unauthenticated", reached: 0 },
      name,
    );
  }
});
