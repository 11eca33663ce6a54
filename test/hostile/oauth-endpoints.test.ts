import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import t from "tap";
import { ask } from "../kit/client.ts";
import { PlainBrowser } from "../oauth/browser.ts";
import { authorizeUrl, openSetting, postForm, REDIRECT, registered } from "../oauth/kit.ts";

const CLIENT = "https://app.example.com/client.json";
const document = { client_id: CLIENT, redirect_uris: [REDIRECT] };

/** What the protocol's library could serve, and what others serve in such places. */
const absent = [
  ...["request", "par", "pushed_authorization_request", "device", "device/auth", "device/x"],
  ...["me", "userinfo", "introspect", "introspection", "token/introspection", "token/revocation"],
  ...["session/end", "session/end/confirm", "logout", "end_session", "backchannel", "reg", "reg/x"],
  ...["register/x", "challenge", "ciba", "auth", "auth/x", "certs", "keys", "jwks.json", "jwks/x"],
  ...["interaction", "interaction/", "interaction/a/b", "authorize/", "authorize/a/b", "token/"],
  ...["%61uthorize", "TOKEN", "token%00", "token;x", ".well-known/openid-configuration", ""],
  ...["interaction/..%2ftoken", "interaction/%2e%2e", `interaction/${"a".repeat(65)}`, "../query"],
];

t.test("nothing is served but what the documents name", async (t) => {
  const { url } = await openSetting(t);
  for (const name of absent) {
    for (const method of ["GET", "POST", "PUT", "DELETE", "PATCH"]) {
      const { status } = await fetch(`${url}/oauth/${name}`, { method, redirect: "manual" });
      t.equal(status, 404, `${method} ${name}`);
    }
  }
});

t.test("both documents say the same, under whatever name the server is asked", async (t) => {
  const { url } = await openSetting(t);
  const spoofed = { "x-forwarded-host": "evil.test", "x-forwarded-proto": "https" };
  const documents = await Promise.all(
    ["oauth-authorization-server", "openid-configuration"].map(async (name) => {
      const answer = await fetch(`${url}/.well-known/${name}`, { headers: spoofed });
      return answer.text();
    }),
  );
  t.equal(documents[0], documents[1]);
  const metadata: Record<string, unknown> = { ...Object(JSON.parse(documents[0] ?? "")) };
  const places = Object.entries(metadata).filter(([name]) => /_endpoint$|_uri$/.test(name));
  t.equal(places.length, 5);
  for (const [name, place] of places) {
    t.ok(String(place).startsWith(`${url}/oauth/`), name);
    for (const method of ["GET", "POST"]) {
      const { status } = await fetch(String(place), { method, redirect: "manual" });
      t.notOk(status === 404 || status >= 500, `${method} ${name} is ${status}`);
    }
  }
  const grants = [
    ...[
      "client_credentials",
      "password",
      "implicit",
      "",
      "authorization_code ",
      "AUTHORIZATION_CODE",
    ],
    ...["device_code", "jwt-bearer", "saml2-bearer", "token-exchange"].map(
      (name) => `urn:ietf:params:oauth:grant-type:${name}`,
    ),
    ...["urn:openid:params:grant-type:ciba", "__proto__", "constructor", "toString"],
  ];
  const client_id = await registered({ url });
  for (const grant_type of grants) {
    const more = { username: "alice", password: "correct horse", scope: "mcp:tools" };
    const { status, body } = await postForm(`${url}/oauth/token`, {
      grant_type,
      client_id,
      ...more,
    });
    t.equal(status, 400, grant_type);
    t.match(body.error, /^(?:unsupported_grant_type|invalid_request)$/, grant_type);
  }
});

t.test("no page says again what was said to it but as text", async (t) => {
  const setting = await openSetting(t);
  const evil = `"'><svg/onload=alert(1)>\${1}{{1}}</title></style><script>x</script>`;
  const raw = /<svg|<script|<\/title>(?!\n<style>)|onload=alert\(1\)>/;
  const client_id = await registered(setting, {
    client_name: evil.slice(0, 90),
    redirect_uris: [REDIRECT],
  });
  const names = [
    ...["client_id", "redirect_uri", "scope", "state", "resource", "response_type", "prompt"],
    ...["response_mode", "code_challenge", "code_challenge_method", "request", evil],
  ];
  const urls = names.map((name) => authorizeUrl(setting, { client_id, [name]: evil }));
  const encoded = encodeURIComponent(evil);
  urls.push(
    authorizeUrl(setting, { client_id }),
    ...["authorize/x", "interaction/x", encoded].map((end) => `${setting.url}/oauth/${end}`),
    ...["authorize/x", "interaction/x"].map((end) => `${setting.url}/oauth/${end}?${encoded}`),
  );
  for (const url of urls) {
    const answer = await fetch(url, { headers: { accept: "text/html" }, redirect: "manual" });
    const page =
      answer.status === 303
        ? await new PlainBrowser(setting.url).open(url).catch(() => null)
        : null;
    const text = page?.text ?? (await answer.text());
    t.notMatch(text, raw, url.slice(setting.url.length, 400));
  }
  const page = await new PlainBrowser(setting.url).open(authorizeUrl(setting, { client_id }));
  const browser = new PlainBrowser(setting.url);
  const login = await browser.open(authorizeUrl(setting, { client_id }));
  const again = await browser.submit(login, { username: evil, password: evil, action: "login" });
  for (const { text } of [page, again]) t.notMatch(text, raw);
  const forms = [{ action: evil }, { [evil]: evil }, { csrf: evil }, { username: evil }];
  for (const form of forms) t.notMatch((await browser.submit(again, { ...form })).text, raw);
});

t.test("a page is given to nobody who asks for it by a script", async (t) => {
  const setting = await openSetting(t);
  const { url, headers } = await new PlainBrowser(setting.url).open(
    authorizeUrl(setting, { client_id: await registered(setting) }),
  );
  t.match(headers.get("content-type"), "text/html");
  const targets = [url, url.replace("/interaction/", "/authorize/"), authorizeUrl(setting, {})];
  for (const site of ["same-origin", "same-site", "cross-site"]) {
    for (const mode of ["cors", "no-cors", "same-origin", "websocket"]) {
      for (const target of targets) {
        const asked = { "sec-fetch-site": site, "sec-fetch-mode": mode };
        const { status, body } = await ask(target, { headers: asked });
        t.equal(status, 403, `${site} ${mode}`);
        t.notMatch(body.toString(), "csrf");
      }
    }
    const gone = { "sec-fetch-site": site, "sec-fetch-mode": "navigate" };
    t.not((await ask(url, { headers: gone })).status, 403, "a browser may go there");
  }
});

t.test("made-up cookies leave nothing behind", async (t) => {
  const setting = await openSetting(t);
  const kept = () => {
    const database = new DatabaseSync(path.join(setting.directory, "state.sqlite"), {
      readOnly: true,
    });
    const row = database.prepare("SELECT count(*) AS n FROM records").get();
    database.close();
    return row?.n;
  };
  const before = kept();
  for (const name of ["gatehouse_session", "gatehouse_interaction", "gatehouse_resume"]) {
    for (const value of ["x", "../x", "%00", "' OR 1=1 --", "a".repeat(3000), '"x"']) {
      for (const place of ["authorize/x", "interaction/x", "interaction/x?"]) {
        const url = `${setting.url}/oauth/${place}`;
        const cookie = `${name}=${value}; gatehouse_session=y; gatehouse_session.sig=z`;
        const { status } = await fetch(url, { headers: { cookie, accept: "text/html" } });
        t.equal(status, 400, `${place} with ${name}=${value.slice(0, 20)}`);
      }
    }
  }
  t.equal(kept(), before);
});

t.test("nobody has documents of clients fetched without bound", async (t) => {
  let fetched = 0;
  const setting = await openSetting(t, {
    documents: async (url) => {
      fetched++;
      if (url !== CLIENT) throw new Error("there is no such document");
      return { body: JSON.stringify(document), cacheControl: undefined };
    },
  });
  for (let at = 0; at < 40; at++) {
    const client_id = `https://app.example.com/${at}.json`;
    const revoked = { token: "x", client_id };
    const { status } = await postForm(`${setting.url}/oauth/revoke`, revoked);
    t.equal(status, 200, "a token of nobody's is revoked, whoever asks");
  }
  t.equal(fetched, 0, "a revocation fetches nothing");
  for (let at = 0; at < 40; at++) {
    const client_id = `https://app.example.com/${at}.json`;
    const form = { grant_type: "refresh_token", refresh_token: "x", client_id };
    const { body } = await postForm(`${setting.url}/oauth/token`, form);
    t.equal(body.error, "invalid_client");
  }
  t.equal(fetched, 30, "of all other requests a minute no more than these do");
});
