import { readFileSync } from "node:fs";
import t from "tap";
import { eventually } from "../kit/eventually.ts";
import { ADMIN_PASSWORD } from "../kit/gateway.ts";
import { type ConsoleClient, seenOn, signedIn, startConsole, unescaped } from "./kit.ts";

const USERS = 1000;
const DATABASES = 20;

/** Users without a password, each with a grant on each of the databases. */
function manyUsers(): string {
  const numbered = (count: number, name: string) =>
    Array.from({ length: count }, (_, at) => `${name}${String(at).padStart(4, "0")}`);
  const databases = numbered(DATABASES, "db");
  const records = numbered(USERS, "user").map((username) => {
    const grants = databases.map(
      (database) =>
        `[[acl]]\nusername = "${username}"\ndatabase = "${database}"\nrole = "ReadOnly"\n`,
    );
    return `[[users]]\nusername = "${username}"\n\n${grants.join("\n")}`;
  });
  return `\n${records.join("\n")}`;
}

/** The users that a page of the list names, in their order. */
function namesOn(text: string): string[] {
  return [...text.matchAll(/href="\/access\/user\?user=([\w.-]+)"><bdi>/g)].map(
    ([, name = ""]) => name,
  );
}

/** What the list says, row by row, as text. */
async function rowsOf(client: ConsoleClient, query: string): Promise<string[]> {
  const { text } = await client.get(`/access?${query}`);
  const body = /<tbody[^>]*>([\s\S]*?)<\/tbody>/.exec(text)?.[1] ?? "";
  return body
    .split("</tr>")
    .map((row) => unescaped(row.replaceAll("</td>", "|").replaceAll(/<[^>]*>/g, "")).trim())
    .filter((row) => row !== "");
}

const setting = startConsole(t).then(async ({ gateway, url }) => {
  await gateway.addUser("alice", "ReadWrite");
  await gateway.addUser("bob", "ReadOnly", "other");
  await gateway.addUser("carol", "ReadOnly", "third");
  return { gateway, url };
});

t.test("for a table the list shows by which entry each reaches it", async (t) => {
  const { gateway, url } = await setting;
  const token = await gateway.login();
  const put = (path: string, entry: object) =>
    gateway.send("PUT", `/api/access/${path}`, entry, token);
  await put("alice/main/tickets", { role: "ReadOnly", max_rows: 20 });
  await put("alice/main/customer_*", { role: "None" });
  const client = await signedIn(t, url);
  t.strictSame(await rowsOf(client, "place=main.tickets"), [
    "admin |*|Owner|not narrowed|no end|",
    "alice |main.tickets|ReadOnly|at most 20 rows|no end|",
  ]);
  t.strictSame(
    (await rowsOf(client, "place=main.customer_eu"))[1],
    "alice |main.customer_*|None|not narrowed|no end|",
  );
  t.strictSame(
    (await rowsOf(client, "place=main.orders"))[1],
    "alice |main|ReadWrite|not narrowed|no end|",
  );
  t.equal((await rowsOf(client, "place=main")).length, 4);
});

t.test("an entry for a time is given beside the one for good, and changed by itself", async (t) => {
  const { url } = await setting;
  const client = await signedIn(t, url);
  const place = "user=bob&database=other&table=";
  const give = async (fields: Record<string, string>) => {
    const seen = await seenOn(client, `/access/entry?${place}`);
    const form = { user: "bob", database: "other", table: "", seen, password: ADMIN_PASSWORD };
    return client.post("/access/entry", { ...form, ...fields });
  };
  const expires = "2199-12-24T18:00";
  t.equal((await give({ role: "ReadWrite", expires, beside: "yes" })).status, 303);
  const { text } = await client.get("/access/user?user=bob");
  t.match(text, "2199-12-24 18:00:00 UTC");
  t.match(text, /no end/);
  const temporary = (await client.get(`/access/entry?${place}&temporary=yes`)).text;
  t.match(temporary, /value="2199-12-24T18:00:00"/);
  t.match(temporary, /name="beside" value="yes" checked/);
  t.match(
    (await client.get(`/access/entry?${place}`)).text,
    /id="expires" name="expires" type="datetime-local" value=""/,
  );
  t.equal((await give({ role: "DbAdmin", beside: "yes" })).status, 303);
  const file = (await client.get("/access?user=bob")).text;
  t.match(file, /DbAdmin[\s\S]*ReadWrite|ReadWrite[\s\S]*DbAdmin/);
  t.equal((await give({ role: "ReadOnly" })).status, 303, "without it both are replaced");
  t.equal((await rowsOf(client, "user=bob")).length, 1);
});

t.test("of two who send the same form at one moment one is told of the other", async (t) => {
  const { url } = await setting;
  const [one, other] = await Promise.all([signedIn(t, url), signedIn(t, url)]);
  const route = "/access/entry?user=carol&database=third";
  for (let round = 0; round < 5; round++) {
    const roles = round % 2 === 0 ? ["ReadWrite", "DbAdmin"] : ["ReadOnly", "None"];
    const answers = await Promise.all(
      [one, other].map(async (client, at) => {
        const seen = await seenOn(client, route);
        return { client, seen, role: roles[at] ?? "" };
      }),
    ).then((forms) =>
      Promise.all(
        forms.map(({ client, seen, role }) =>
          client.post("/access/entry", {
            ...{ user: "carol", database: "third", table: "", role, seen },
            password: ADMIN_PASSWORD,
          }),
        ),
      ),
    );
    t.strictSame(answers.map(({ status }) => status).sort(), [303, 409], `round ${round}`);
    t.match(answers.find(({ status }) => status === 409)?.text, /Gone:[\s\S]*New:/);
  }
});

t.test("who is demoted behind a form that is open changes nothing with it", async (t) => {
  const { gateway, url } = await setting;
  await gateway.addUser("erin", "Owner", "*");
  const erin = await signedIn(t, url, "erin", "erin password");
  const route = "/access/entry?user=carol&database=third";
  const seen = await seenOn(erin, route);
  const admin = await gateway.login();
  await gateway.send("PUT", "/api/access/erin/*", { role: "ReadOnly" }, admin);
  const form = { user: "carol", database: "third", table: "", role: "DbAdmin", seen };
  const before = readFileSync(gateway.accessFile, "utf8");
  const { status } = await erin.post("/access/entry", { ...form, password: "erin password" });
  t.equal(status, 403);
  t.equal((await erin.get(route)).status, 403);
  t.equal(readFileSync(gateway.accessFile, "utf8"), before);
});

t.test("a thousand users with twenty grants each are paged and searched", async (t) => {
  const { gateway, url } = await setting;
  const client = await signedIn(t, url);
  await gateway.edit((text) => text + manyUsers());
  await eventually("they are in force", async () => {
    const { text } = await client.get("/access?user=user0000");
    return namesOn(text).length > 0;
  });
  const found: string[] = [];
  let pages = 0;
  const start = performance.now();
  for (let route: string | undefined = "/access"; route !== undefined; pages++) {
    const { status, text } = await client.get(route);
    t.equal(status, 200, route);
    t.ok(text.length < 200_000, "a page stays one that a browser shows at once");
    found.push(...namesOn(text));
    route =
      unescaped(/<a class="button" href="([^"]*)">More users/.exec(text)?.[1] ?? "") || undefined;
  }
  t.comment(`${Math.round((performance.now() - start) / pages)} ms a page`);
  t.equal(pages, 21);
  t.equal(found.length, USERS + 5, "each once");
  t.strictSame(found, found.toSorted());
  const { text } = await client.get("/access?user=USER0999");
  t.strictSame(namesOn(text), ["user0999"]);
  t.match(text, "and 14 more");
  t.equal((await rowsOf(client, "user=user0999&place=db0019")).length, 1);
  t.equal((await rowsOf(client, "user=user0999&place=nowhere")).length, 0);
});
