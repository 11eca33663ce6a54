import t from "tap";
import {
  createDocumentFetch,
  isNetworkAddress,
  isPublicAddress,
  type ResolveAll,
} from "../../src/oauth/server/client-documents.ts";
import { PATIENCE_MS } from "../kit/eventually.ts";
import { PlainBrowser } from "./browser.ts";
import { openDocumentHost } from "./document-host.ts";
import { obtainTokens } from "./flow.ts";
import { authorizeUrl, documentsOf, openSetting, REDIRECT } from "./kit.ts";

const CLIENT = "https://app.example.com/client.json";

t.test("a client is known by the document at its name", async (t) => {
  const document = { client_id: CLIENT, client_name: "Hosted", redirect_uris: [REDIRECT] };
  const setting = await openSetting(t, { documents: documentsOf({ [CLIENT]: document }) });
  const page = await new PlainBrowser(setting.url).open(
    authorizeUrl(setting, { client_id: CLIENT }),
  );
  t.match(page.text, "Hosted");
  t.match(page.text, "<dd>app.example.com</dd>");
  const { accessToken } = await obtainTokens(setting, { clientId: CLIENT });
  t.match(await setting.server.verify(accessToken), { clientId: CLIENT });
});

t.test("a document that is not the client's own, or bad, makes no client", async (t) => {
  const base = { client_id: CLIENT, redirect_uris: [REDIRECT] };
  for (const document of [
    { ...base, client_id: "https://other.example.com/client.json" },
    { redirect_uris: [REDIRECT] },
    { ...base, redirect_uris: ["http://app.example.com/"] },
    { ...base, token_endpoint_auth_method: "client_secret_basic" },
    undefined,
  ]) {
    const setting = await openSetting(t, { documents: documentsOf({ [CLIENT]: document }) });
    const url = authorizeUrl(setting, { client_id: CLIENT });
    const page = await new PlainBrowser(setting.url).open(url);
    t.equal(page.status, 400, JSON.stringify(document));
  }
});

t.test("only addresses of the public internet are public", async (t) => {
  for (const address of ["93.184.215.14", "2606:4700:4700::1111"]) t.ok(isPublicAddress(address));
  for (const address of [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.0.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "255.255.255.255",
    "224.0.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "::",
    "::1",
    "::ffff:10.0.0.1",
    "::10.0.0.1",
    "fe80::1",
    "fc00::1",
    "fec0::1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "2001:db8::1",
    "ff02::1",
    "64:ff9b:1::1",
    "4000::1",
    "nonsense",
  ]) {
    t.notOk(isPublicAddress(address), address);
  }
});

t.test("addresses of an own network are those, and not the ones of a link", async (t) => {
  for (const address of ["127.0.0.1", "10.1.2.3", "192.168.0.1", "100.64.0.1", "::1", "fd00::1"]) {
    t.ok(isNetworkAddress(address), address);
  }
  for (const address of ["169.254.169.254", "fe80::1", "0.0.0.0", "::", "224.0.0.1", "x"]) {
    t.notOk(isNetworkAddress(address), address);
  }
});

/** Resolves every name to these addresses. */
function resolvesTo(...addresses: readonly string[]): ResolveAll {
  return (_, done) =>
    done(
      null,
      addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 })),
    );
}

t.test("no document is fetched from this machine, under whatever name", async (t) => {
  const { port, reached } = await openDocumentHost(t);
  const signal = AbortSignal.timeout(PATIENCE_MS);
  for (const addresses of [["127.0.0.1"], ["93.184.215.14", "127.0.0.1"], ["::ffff:127.0.0.1"]]) {
    const inside = createDocumentFetch({ resolve: resolvesTo(...addresses) });
    await t.rejects(inside(`https://app.example.com:${port}/`, signal), /not public/);
  }
  const fetchDocument = createDocumentFetch();
  for (const host of [
    "127.0.0.1",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "localhost",
    "2130706433",
    "0x7f.1",
  ]) {
    await t.rejects(fetchDocument(`https://${host}:${port}/`, signal), /not public/, host);
  }
  await t.rejects(fetchDocument(`http://app.example.com:${port}/`, signal), /https/);
  t.equal(reached(), 0);
});

t.test("a host that the operator has named may be near, and no other one", async (t) => {
  const { port, host, reached } = await openDocumentHost(t);
  const signal = AbortSignal.timeout(PATIENCE_MS);
  const named = createDocumentFetch({ privateHosts: [host] });
  await t.rejects(named(`https://${host}/`, signal), /self-signed certificate/, "it is asked");
  t.equal(reached(), 1);
  for (const other of [`127.0.0.1:${port}`, "localhost", `[::ffff:127.0.0.1]:${port}`]) {
    await t.rejects(named(`https://${other}/`, signal), /not public/, other);
  }
  t.equal(reached(), 1);
});

t.test("a host that the operator has named is not asked on the link", async (t) => {
  const fetchDocument = createDocumentFetch({
    privateHosts: ["app.example.com"],
    resolve: resolvesTo("169.254.169.254"),
  });
  const answer = fetchDocument("https://app.example.com/", AbortSignal.timeout(PATIENCE_MS));
  await t.rejects(answer, /not public/);
});

t.test("a name that is rebound to this machine is not followed there", async (t) => {
  const { port, reached } = await openDocumentHost(t);
  let asked = 0;
  const fetchDocument = createDocumentFetch({
    resolve: (hostname, done) => {
      asked += 1;
      resolvesTo(asked === 1 ? "192.0.2.1" : "127.0.0.1")(hostname, done);
    },
  });
  const url = `https://app.example.com:${port}/`;
  for (const round of ["first", "second"]) {
    await t.rejects(fetchDocument(url, AbortSignal.timeout(PATIENCE_MS)), /not public/, round);
  }
  t.equal(asked, 2, "what was looked up once is not relied on later");
  t.equal(reached(), 0);
});
