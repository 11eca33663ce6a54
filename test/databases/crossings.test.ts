import { readFile } from "node:fs/promises";
import { type ClientRequest, request as httpRequest } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { type PresetName, presetNames } from "../../src/core/config/upstream.ts";
import { eventually } from "../kit/eventually.ts";
import { type Answer, auditOf, putInPlace, type TestGateway } from "../kit/gateway.ts";
import { sampled } from "../kit/nightly.ts";
import type { RecordingUpstream } from "../kit/upstream.ts";
import { runWarm } from "../kit/warm-command.ts";
import { TestIssuer } from "../oauth/issuer.ts";
import { reserveMetrics } from "../observe/exposition.ts";
import { ChromaStub } from "./kit/chroma.ts";
import { CouchStub } from "./kit/couch.ts";
import { type OpenOptions, openPreset, taken } from "./kit/open.ts";
import { OpenSearchStub } from "./kit/opensearch.ts";

interface Request {
  readonly method: string;
  readonly path: string;
  readonly body?: unknown;
}

/** A place that the tests give rights on, another one, and requests to both. */
interface Scene {
  readonly stub: RecordingUpstream;
  readonly database: string;
  /** Keys of an entry for the place. */
  readonly place: string;
  readonly read: Request;
  readonly write: Request;
  readonly elsewhere: Request;
  /** A list that is filtered. */
  readonly list: Request;
  /** The path of an upload, by POST or PUT. */
  readonly upload: Request;
  readonly pattern: string;
}

const scenes: Readonly<Record<PresetName, (t: Test) => Promise<Scene>>> = {
  async chroma(t) {
    const stub = await ChromaStub.open(t);
    const id = stub.addCollection("alpha", "docs", "for all");
    stub.addCollection("bravo", "secret", "hush");
    const databases = "/api/v2/tenants/default_tenant/databases";
    const path = `${databases}/alpha/collections/${id}`;
    const pattern = "/api/v2/tenants/:tenant/databases/:database/collections/:id";
    const added = { ids: ["2"], documents: ["two"] };
    return {
      stub,
      database: "alpha",
      place: 'database = "alpha"\ntables = ["docs"]',
      read: { method: "POST", path: `${path}/get`, body: {} },
      write: { method: "POST", path: `${path}/upsert`, body: added },
      elsewhere: { method: "GET", path: `${databases}/bravo/collections/secret` },
      list: { method: "GET", path: databases },
      upload: { method: "POST", path: `${path}/upsert` },
      pattern: `${pattern}/get`,
    };
  },
  async opensearch(t) {
    const stub = await OpenSearchStub.open(t);
    for (const index of ["logs-1", "secret"]) {
      await fetch(`${stub.url}/${index}/_doc/1`, { method: "PUT", body: '{"t":1}' });
    }
    return {
      stub,
      database: "main",
      place: 'database = "main"\ntables = ["logs-*"]',
      read: { method: "POST", path: "/logs-1/_search", body: {} },
      write: { method: "PUT", path: "/logs-1/_doc/2", body: { t: 2 } },
      elsewhere: { method: "POST", path: "/secret/_search", body: {} },
      list: { method: "GET", path: "/_alias" },
      upload: { method: "PUT", path: "/logs-1/_doc/3" },
      pattern: "/:index/_search",
    };
  },
  async couchdb(t) {
    const stub = await CouchStub.open(t);
    stub.addDatabase("alpha", "a");
    stub.addDatabase("bravo", "secret");
    return {
      stub,
      database: "alpha",
      place: 'database = "alpha"',
      read: { method: "GET", path: "/alpha/a" },
      write: { method: "POST", path: "/alpha", body: { x: 1, _rev: "1-a" } },
      elsewhere: { method: "GET", path: "/bravo/secret" },
      list: { method: "GET", path: "/_all_dbs" },
      upload: { method: "PUT", path: "/alpha/b/file" },
      pattern: "/:database/:doc",
    };
  },
};

async function open(
  t: Test,
  preset: PresetName,
  optionsOf: (scene: Scene) => Partial<OpenOptions> = () => ({}),
) {
  const scene = await scenes[preset](t);
  const grants = ["root * Owner", "rita elsewhere ReadOnly"];
  const opened = await openPreset(t, preset, scene.stub.url, { grants, ...optionsOf(scene) });
  taken(scene.stub);
  return { ...scene, ...opened };
}

function entry(holder: string, place: string, role: string): string {
  return `\n[[acl]]\n${holder}\n${place}\nrole = "${role}"\n`;
}

function ask(
  gateway: TestGateway,
  { method, path, body }: Request,
  headers: Readonly<Record<string, string>>,
): Promise<Answer> {
  if (body === undefined) return gateway.request(path, { method, headers });
  return gateway.request(path, {
    method,
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  });
}

const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
const basic = (user: string, password: string) => ({
  authorization: `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`,
});
const codeOf = ({ status, body }: Answer) => (status < 300 ? "ok" : `${status} ${body.code ?? ""}`);

// Decisions that precede the reading of the request by a preset.
for (const preset of sampled(presetNames)) {
  const staff = await TestIssuer.start(t);
  const opened = await open(t, preset, ({ place }) => ({
    config: staff.section('groups_claim = "groups"'),
    auth: 'accept = ["bearer", "basic", "apikey", "header:x-chroma-token"]',
    grants: ["root * Owner", ...["rita", "wim", "kim"].map((name) => `${name} elsewhere ReadOnly`)],
    more:
      '\n[[groups]]\nname = "analysts"\nmembers = ["rita"]\n' +
      entry('group = "analysts"', place, "ReadOnly") +
      entry('group = "staff:readers"', place, "ReadOnly") +
      entry('group = "staff:writers"', place, "ReadWrite") +
      entry('username = "wim"', place, "ReadOnly"),
  }));

  t.test(`${preset}: a right of a group ends within a second of leaving it`, async (t) => {
    const { gateway, login, read, write, elsewhere, place } = opened;
    const headers = bearer(await login("rita"));
    const answer = await ask(gateway, read, headers);
    t.equal(codeOf(answer), "ok", answer.text);
    const { operations } = await auditOf(gateway, answer);
    t.match(operations, [{ operation: "SELECT", role: "ReadOnly", entry: /analysts/ }]);
    t.equal(codeOf(await ask(gateway, write, headers)), "403 role_insufficient", place);
    t.equal(codeOf(await ask(gateway, elsewhere, headers)), "403 no_grant");
    await gateway.edit((text) => text.replace('members = ["rita"]', "members = []"));
    await eventually("the right has ended", async () => {
      return codeOf(await ask(gateway, read, headers)) === "403 no_grant";
    });
  });

  t.test(`${preset}: a user of an identity provider has the rights of its groups`, async (t) => {
    const { gateway, stub, read, write, elsewhere } = opened;
    const sign = async (...groups: string[]) =>
      bearer(await staff.sign("gatehouse", { claims: { groups } }));
    const reader = await sign("readers");
    const answer = await ask(gateway, read, reader);
    t.equal(codeOf(answer), "ok", answer.text);
    t.match(await auditOf(gateway, answer), { user: "staff:alice", decision: "allow" });
    const [sent] = taken(stub).slice(-1);
    t.equal(sent?.headers["x-gatehouse-user"], "staff:alice");
    t.equal(codeOf(await ask(gateway, write, reader)), "403 role_insufficient");
    t.equal(codeOf(await ask(gateway, write, await sign("writers"))), "ok");
    t.match(codeOf(await ask(gateway, read, await sign("others"))), /^403 /);
    t.equal(codeOf(await ask(gateway, elsewhere, reader)), "403 no_grant");
  });

  t.test(`${preset}: an issued token opens it in every header until it is revoked`, async (t) => {
    const { gateway, stub, read, write } = opened;
    const flags = ["token", "issue", "wim", "--opaque", "--name", "nightly"];
    const token = (await runWarm(gateway.home, flags)).stdout.trim();
    t.match(token, /^gh_/);
    const forms = [
      bearer(token),
      basic("anyone", token),
      { authorization: `ApiKey ${token}` },
      { "x-chroma-token": token },
    ];
    for (const headers of forms) {
      const answer = await ask(gateway, read, headers);
      t.equal(codeOf(answer), "ok", answer.text);
      t.match(await auditOf(gateway, answer), { user: "wim", decision: "allow" });
      t.equal(codeOf(await ask(gateway, write, headers)), "403 role_insufficient");
    }
    const password = await ask(gateway, read, basic("wim", "wim password"));
    t.equal(codeOf(password), "ok", "a password opens it too");
    const up = JSON.stringify(taken(stub).map(({ url, headers }) => [url, headers]));
    t.notMatch(up, token.slice(3));
    t.notMatch(up, /authorization/i);
    const twice = await ask(gateway, read, { ...bearer(token), "x-chroma-token": token });
    t.equal(codeOf(twice), "400 several_credentials");
    await runWarm(gateway.home, ["token", "revoke", "nightly"]);
    for (const headers of forms) {
      await eventually("the token is revoked", async () => {
        return (await ask(gateway, read, headers)).status === 401;
      });
    }
  });

  t.test(`${preset}: commands say which limits deny everything`, async (t) => {
    const { gateway, login, read, place, database, pattern } = opened;
    const headers = bearer(await login("kim"));
    const { stdout: before } = await runWarm(gateway.home, ["config", "check"]);
    t.notMatch(before, "upstream.preset");
    const table = /tables = \["(.*)"\]/.exec(place)?.[1]?.replace("*", "1");
    const where = table === undefined ? database : `${database}.${table}`;
    for (const [limit, expected] of [
      ["", "ok"],
      ["max_rows = 5", "403 not_narrowable"],
      ['columns = ["id"]', "403 not_narrowable"],
      ['require_approval = ["SELECT"]', "403 not_narrowable"],
      ['require_approval = ["DELETE"]', "ok"],
    ] as const) {
      const limited = `${entry('username = "kim"', place, "ReadWrite")}${limit}\n`;
      let written = "";
      await gateway.edit((text) => {
        written = text;
        return text + limited;
      });
      await eventually(`${limit} decides`, async () => {
        const answer = await ask(gateway, read, headers);
        return codeOf(answer) === expected;
      });
      const check = await runWarm(gateway.home, ["access", "check", "kim", "SELECT", where]);
      t.match(check.stdout, expected === "ok" ? /^allowed/ : /^denied.*upstream\.preset/, limit);
      const who = await runWarm(gateway.home, ["access", "who", "SELECT", where]);
      t.equal(/^kim /m.test(who.stdout), expected === "ok", `${pattern}: ${limit}`);
      const effective = ["access", "list", "--effective", "kim", "--json"];
      const rows = JSON.parse((await runWarm(gateway.home, effective)).stdout);
      const [row] = rows.filter((one: { database: string }) => one.database === database);
      t.equal(row.operations.includes("SELECT"), expected === "ok", limit);
      const lint = await runWarm(gateway.home, ["config", "check"]);
      t.equal(lint.stderr.includes("upstream.preset"), limit !== "", limit);
      await gateway.edit(() => written);
    }
  });

  t.test(`${preset}: an upload takes one of the connections`, async (t) => {
    const { gateway, login, stub, upload, read } = await open(t, preset, () => ({
      config: "connections = 1\n",
    }));
    const headers = bearer(await login("root"));
    t.equal(codeOf(await ask(gateway, read, headers)), "ok");
    const text = `{"ids":["9"],"documents":["${"x".repeat(2_000_000)}"]}`;
    const sent = beginUpload(gateway, upload, headers, text.length);
    sent.request.write(text.slice(0, 1_500_000));
    await eventually("the upload has begun", async () => {
      const { text } = await gateway.request("/_gatehouse/healthz");
      return text !== "" && sent.request.writableLength === 0;
    });
    await delay(300);
    taken(stub);
    let isRead = false;
    const reading = ask(gateway, read, headers).finally(() => (isRead = true));
    await delay(300);
    t.notOk(isRead, "a read waits for the connection");
    sent.request.end(text.slice(1_500_000));
    t.ok((await sent.status) < 300);
    t.equal(codeOf(await reading), "ok");
  });
}

const boundaries = (database: string) => `
[[boundaries]]
via = "query"
username = "rita"
role = "ReadOnly"

[[boundaries]]
via = "mcp"
role = "None"

[[boundaries]]
via = "query"
client = "agent"
role = "None"

[[boundaries]]
via = "query"
database = "${database}"
username = "lars"
rate_limit = "3/hour"
`;

const origin = "https://app.example.com";
/** Headers that clients of a preset send from a page. */
const ownHeaders: Readonly<Record<PresetName, readonly string[]>> = {
  chroma: [],
  opensearch: ["x-opaque-id", "x-elastic-client-meta", "user-agent"],
  couchdb: ["destination", "if-match", "last-event-id"],
};

for (const preset of presetNames) {
  t.test(`${preset}: a gateway limits and counts what it forwards`, async (t) => {
    const staff = await TestIssuer.start(t);
    const { section, read: metrics } = await reserveMetrics();
    const config = `${staff.section()}
${section}
[server]
max_body_bytes = 5000
allowed_origins = ["${origin}"]
`;
    const { gateway, login, stub, read, write, list, pattern } = await open(
      t,
      preset,
      ({ place, database }) => ({
        config,
        auth: 'accept = ["bearer", "header:x-chroma-token"]',
        grants: ["root * Owner", "rita elsewhere ReadOnly", "lars elsewhere ReadOnly"],
        more:
          entry('username = "rita"', place, "ReadWrite") +
          entry('username = "lars"', place, "ReadOnly") +
          entry('username = "staff:alice"', place, "ReadWrite") +
          boundaries(database),
      }),
    );
    const rita = bearer(await login("rita"));
    const lars = bearer(await login("lars"));
    const root = bearer(await login("root"));

    await t.test("requests are counted by their path and right", async (t) => {
      for (let count = 0; count < 3; count++) {
        t.equal(codeOf(await ask(gateway, read, rita)), "ok", "the boundary of mcp is another one");
      }
      taken(stub);
      const denied = await ask(gateway, write, rita);
      t.equal(codeOf(denied), "403 role_insufficient", "a boundary of the way in");
      t.match(denied.body.message, /under the boundary query username=rita/);
      const { operations } = await auditOf(gateway, denied);
      t.match(operations, [{ boundary: /rita/ }]);
      t.notOk(
        taken(stub).some(({ url }) => url === write.path),
        "nothing is forwarded",
      );
      await ask(gateway, { method: "GET", path: "/_nothing/of/the/kind" }, rita);
      await eventually("all are counted", async () =>
        (await metrics()).includes('route="unknown",status="404"'),
      );
      const page = await metrics();
      const total = (labels: string) => new RegExp(`^${labels} (\\d+)$`, "m").exec(page)?.[1];
      const route = pattern.replaceAll("/", "\\/");
      const allowed = `gatehouse_requests_total\\{route="${route}",status="200",reason="allowed"\\}`;
      t.equal(total(allowed), "3");
      const decided =
        'gatehouse_decisions_total\\{operation="SELECT",decision="allow",reason="allowed"\\}';
      t.equal(total(decided), "3");
      t.match(
        page,
        /gatehouse_decisions_total\{operation="(?:INSERT )?(?:UPDATE|INSERT)",decision="deny",reason="role_insufficient"\} 1/,
      );
      t.notMatch(page, /_nothing|logs-1|default_tenant/, "no name of a client is a label");
    });

    await t.test("a page of an allowed origin may be an ordinary client", async (t) => {
      const asked = await gateway.request(read.path, {
        method: "OPTIONS",
        headers: { origin, "access-control-request-method": read.method },
      });
      t.equal(asked.status, 204, preset);
      const allowed = asked.headers.get("access-control-allow-headers")?.toLowerCase().split(", ");
      const names = ["authorization", "content-encoding", "x-chroma-token", ...ownHeaders[preset]];
      for (const name of names) t.ok(allowed?.includes(name), `${preset}: ${name}`);
      t.equal(
        allowed?.includes("destination"),
        preset === "couchdb",
        "no header of another preset",
      );
      const headers = { ...root, origin };
      const answers = [
        asked,
        await ask(gateway, read, headers),
        await ask(gateway, { ...read, path: "/_nothing" }, headers),
      ];
      for (const { headers } of answers) {
        t.equal(headers.get("access-control-allow-origin"), origin);
        t.equal(headers.get("access-control-allow-credentials"), "true", "PouchDB sends cookies");
      }
      const own = await gateway.request("/_gatehouse/healthz", { headers: { origin } });
      t.equal(own.headers.get("access-control-allow-origin"), origin);
      t.equal(own.headers.get("access-control-allow-credentials"), null);
      const other = await ask(gateway, read, { ...headers, origin: "https://evil.example.com" });
      t.equal(other.headers.get("access-control-allow-credentials"), null);
    });

    await t.test("a boundary of a client takes rights away", async (t) => {
      const asClient = async (azp: string) =>
        bearer(await staff.sign("gatehouse", { claims: { azp } }));
      t.equal(codeOf(await ask(gateway, write, await asClient("desktop"))), "ok");
      const agent = await asClient("agent");
      const answer = await ask(gateway, read, agent);
      t.match(codeOf(answer), /^403 /);
      t.match(answer.body.message, /boundary query client=agent|no grant for alpha/);
      t.notMatch((await ask(gateway, list, agent)).text, /alpha|logs-1/, "its lists are empty");
    });

    await t.test(
      "a filtered list is stored by no cache, any other answer by that of its user",
      async (t) => {
        const { headers } = await ask(gateway, read, root);
        t.match(headers.get("cache-control"), /^private/);
        t.match(headers.get("vary"), "Authorization");
        const answer = await ask(gateway, list, rita);
        t.equal(answer.status, 200);
        t.match(answer.text, /alpha|logs-1|\{\}/);
        t.equal(answer.headers.get("cache-control"), "no-store");
      },
    );

    await t.test("rate limits count before anything is looked up", async (t) => {
      t.equal(codeOf(await ask(gateway, read, lars)), "ok");
      t.equal(codeOf(await ask(gateway, write, lars)), "403 role_insufficient", "it counts too");
      const last = await ask(gateway, read, lars);
      t.equal(codeOf(last), "ok");
      const { rates } = await auditOf(gateway, last);
      t.match(rates, [{ limit: "3/hour", counted: 3 }]);
      // Longer than a lookup is remembered.
      await delay(1100);
      taken(stub);
      const limited = await ask(gateway, read, lars);
      t.equal(codeOf(limited), "429 rate_limited");
      t.ok(Number(limited.headers.get("retry-after")) > 0);
      t.same(taken(stub), []);
      t.equal(codeOf(await ask(gateway, read, root)), "ok", "each user has a limit of its own");
    });

    // An upload of CouchDB has a limit of its own.
    if (preset === "couchdb") return;
    await t.test("a lower limit of a configuration that is loaded again applies", async (t) => {
      const searched = {
        method: "POST",
        path: "/logs-1/_search",
        body: { _source: ["x".repeat(2000)] },
      };
      const created = {
        ...read,
        path: write.path.replace(/\/[^/]*\/upsert$/, ""),
        body: { name: "y".repeat(2000) },
      };
      const long = preset === "chroma" ? created : searched;
      t.not(codeOf(await ask(gateway, long, root)), "413 body_too_large");
      const file = `${gateway.home}/gateway.toml`;
      await putInPlace(file, (await readFile(file, "utf8")).replace("5000", "1500"));
      await eventually("the lower limit is in force", async () => {
        return codeOf(await ask(gateway, long, root)) === "413 body_too_large";
      });
      t.equal(codeOf(await ask(gateway, read, root)), "ok");
    });
  });
}

function beginUpload(
  gateway: TestGateway,
  { method, path }: Request,
  headers: Readonly<Record<string, string>>,
  length: number,
): { readonly request: ClientRequest; readonly status: Promise<number> } {
  const { port } = new URL(gateway.url);
  const { promise: status, resolve, reject } = Promise.withResolvers<number>();
  const request = httpRequest({
    port,
    method,
    path,
    headers: { ...headers, "content-type": "application/json", "content-length": length },
  });
  request.on("response", (answer) => {
    answer.resume();
    resolve(answer.statusCode ?? 0);
  });
  request.on("error", reject);
  return { request, status };
}

t.test("an upload that waits for a connection is judged again", async (t) => {
  const { gateway, login, stub, upload } = await open(t, "couchdb", ({ place }) => ({
    config: "connections = 1\n",
    more: entry('username = "rita"', place, "ReadWrite"),
  }));
  const text = "x".repeat(2_000_000);
  const first = beginUpload(gateway, upload, bearer(await login("root")), text.length);
  first.request.write(text.slice(0, 100));
  await delay(300);
  const second = beginUpload(gateway, upload, bearer(await login("rita")), text.length);
  second.request.on("error", () => {});
  second.request.end(text);
  await delay(300);
  await gateway.edit((access) => access.replace('role = "ReadWrite"', 'role = "ReadOnly"'));
  const status = await second.status.catch(() => 0);
  t.ok(status === 403 || status === 0, `${status}`);
  first.request.end(text.slice(100));
  t.ok((await first.status) < 300);
  t.equal(taken(stub).filter(({ method }) => method === "PUT").length, 1);
});

t.test("several workers keep one limit, and end a token together", async (t) => {
  for (const preset of sampled(presetNames)) {
    const { gateway, login, read } = await open(t, preset, ({ place, database }) => ({
      config: "[server]\nworkers = 2\n",
      more:
        entry('username = "rita"', place, "ReadOnly") +
        `\n[[boundaries]]\nvia = "query"\ndatabase = "${database}"\nusername = "rita"\nrate_limit = "6/hour"\n`,
    }));
    const headers = bearer(await login("rita"));
    const codes: string[] = [];
    for (let count = 0; count < 10; count++) {
      codes.push(codeOf(await ask(gateway, read, { ...headers, connection: "close" })));
    }
    t.same(codes.slice(0, 6), Array(6).fill("ok"), preset);
    t.same(codes.slice(6), Array(4).fill("429 rate_limited"), preset);
    const root = await login("root");
    const path = "/_gatehouse/api/users/rita/tokens";
    t.equal((await gateway.send("DELETE", path, undefined, root)).status, 200);
    for (let count = 0; count < 6; count++) {
      const { status } = await ask(gateway, read, { ...headers, connection: "close" });
      t.equal(status, 401, preset);
    }
  }
});

t.test("a feed is cut, and a scroll ends, within a second of the right", async (t) => {
  const couch = await open(t, "couchdb", ({ place }) => ({
    more: entry('username = "rita"', place, "ReadOnly"),
  }));
  const { answer } = couch.stub;
  couch.stub.answer = (request, response) => {
    if (!request.url.includes("feed=continuous")) return answer(request, response);
    response.writeHead(200, { "content-type": "application/json" });
    const timer = setInterval(() => response.write('{"seq":1}\n'), 50);
    response.once("close", () => clearInterval(timer));
  };
  const feed = await fetch(`${couch.gateway.url}/alpha/_changes?feed=continuous`, {
    headers: bearer(await couch.login("rita")),
  });
  t.equal(feed.status, 200);
  const reader = feed.body?.getReader();
  t.match(Buffer.from((await reader?.read())?.value ?? []).toString(), "seq");
  await couch.gateway.edit((text) =>
    text.replace('database = "alpha"\nrole = "ReadOnly"', 'database = "alpha"\nrole = "None"'),
  );
  let isOpen = true;
  while (isOpen)
    isOpen = await (reader?.read() ?? Promise.reject()).then(
      ({ done }) => !done,
      () => false,
    );
  t.pass("the feed was cut");

  const search = await open(t, "opensearch", ({ place }) => ({
    more: entry('username = "rita"', place, "ReadOnly"),
  }));
  const headers = bearer(await search.login("rita"));
  const first = { method: "POST", path: "/logs-1/_search?scroll=1m", body: { size: 1 } };
  const { body } = await ask(search.gateway, first, headers);
  const scroll = { method: "POST", path: "/_search/scroll", body: { scroll_id: body._scroll_id } };
  t.equal(codeOf(await ask(search.gateway, scroll, headers)), "ok");
  await search.gateway.edit((text) => text.replace('tables = ["logs-*"]', 'tables = ["other"]'));
  await eventually("the scroll ends", async () => {
    return (await ask(search.gateway, scroll, headers)).status === 403;
  });
});
