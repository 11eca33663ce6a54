/** A shop in which every row follows from its number, so its size determines all answers. */

/** Rows of the larger tables; each order has one to four `order_lines`. */
interface Sizes {
  readonly customers: number;
  readonly products: number;
  readonly orders: number;
  readonly reviews: number;
}

/** The tests use the small one. */
export const scales = {
  small: { customers: 400, products: 60, orders: 1640, reviews: 470 },
  million: { customers: 60_000, products: 5_000, orders: 246_000, reviews: 70_000 },
} as const satisfies Record<string, Sizes>;

/** A pseudorandom 32-bit number from field and row. */
function chance(field: number, row: number): number {
  let mixed = Math.imul(row ^ Math.imul(field, 0x9e3779b1), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x27d4eb2f);
  return (mixed ^ (mixed >>> 15)) >>> 0;
}

function pick<T>(from: readonly [T, ...T[]], field: number, row: number): T {
  return from[chance(field, row) % from.length] ?? from[0];
}

const firstNames = [
  ...(["Anna", "Anton", "Ben", "Clara", "David", "Elif"] as const),
  ...(["Farid", "Greta", "Hugo", "Ines", "Jonas", "Karin"] as const),
] as const;
const lastNames = ["Adler", "Brandt", "Costa", "Duval", "Egger", "Fischer", "Gruber"] as const;
const cities = ["Graz", "Lyon", "Milan", "Bern", "Ulm", "Gdansk", null] as const;
/** Countries of customers, unevenly distributed. */
const countries = ["DE", "DE", "DE", "AT", "AT", "CH", "FR", "IT", "PL"] as const;
const categories = ["books", "garden", "kitchen", "music", "toys"] as const;
const adjectives = ["Blue", "Old", "Small", "Quiet", "Round"] as const;
const nouns = ["Lamp", "Atlas", "Spade", "Kettle", "Drum", "Kite"] as const;
const statuses = [
  "paid",
  "paid",
  "paid",
  "open",
  "shipped",
  "shipped",
  "returned",
  "cancelled",
] as const;
const makers = ["Acme", "Berg", "Corvo", "Delta"] as const;
const colors = ["blue", "red", "green", "white", "black"] as const;
const remarks = [null, null, "Works well", "Came broken", "As described", "Too small"] as const;
const stars = [5, 5, 4, 4, 3, 1] as const;
const firstDay = Date.UTC(2024, 0, 1);
const millisecondsOfMinute = 60_000;
const millisecondsOfDay = 86_400_000;

function day(field: number, row: number): string {
  const offset = chance(field, row) % 690;
  return new Date(firstDay + offset * millisecondsOfDay).toISOString().slice(0, 10);
}

function later(time: string, minutes: number): string {
  const then = new Date(Date.parse(time) + minutes * millisecondsOfMinute);
  return then.toISOString().replace(".000", "");
}

export type Order = Shop["orders"][number];

/** About a third were referred by an earlier customer. */
function customer(id: number) {
  const [first, last] = [pick(firstNames, 1, id), pick(lastNames, 2, id)];
  return {
    id,
    name: `${first} ${last}`,
    email: `${first}.${last}.${id}@example.com`,
    country: pick(countries, 3, id),
    city: pick(cities, 4, id),
    vip: chance(5, id) % 20 === 0,
    joined: day(6, id),
    referred_by: id > 1 && chance(7, id) % 3 === 0 ? 1 + (chance(8, id) % (id - 1)) : null,
  };
}

function product(id: number) {
  const maker = { name: pick(makers, 16, id), country: pick(countries, 17, id) };
  return {
    id,
    sku: `SKU-${String(id).padStart(5, "0")}`,
    name: `${pick(adjectives, 11, id)} ${pick(nouns, 12, id)} ${id}`,
    category: pick(categories, 13, id),
    price_cents: 100 + (chance(14, id) % 49_900),
    discontinued: chance(15, id) % 12 === 0,
    details: { maker, colors: [pick(colors, 18, id), pick(colors, 19, id)] },
  };
}

function stockOf(productId: number) {
  return {
    product_id: productId,
    north: 20 + (chance(41, productId) % 80),
    south: chance(42, productId) % 50,
  };
}

function coupon(number: number) {
  const code = `C${String(number).padStart(2, "0")}`;
  return { code, percent: 5 * (1 + (number % 6)), uses: chance(51, number) % 30 };
}

/** The last three products were never sold. */
function linesOf(orderId: number, { products }: Sizes) {
  const count = 1 + (chance(21, orderId) % 4);
  return numbered(count, (line) => {
    const row = orderId * 4 + line - 1;
    const { id, price_cents: unit_cents } = product(1 + (chance(22, row) % (products - 3)));
    const quantity = 1 + (chance(23, row) % 5);
    const discount_cents = chance(24, row) % 6 === 0 ? 50 * quantity : null;
    const cents = quantity * unit_cents - (discount_cents ?? 0);
    return { order_id: orderId, line, product_id: id, quantity, unit_cents, discount_cents, cents };
  });
}

/** The last twentieth of the customers have never ordered. */
function order(id: number, { customers }: Sizes, lines: ReturnType<typeof linesOf>) {
  const buyer = customer(1 + (chance(31, id) % Math.floor(customers * 0.95)));
  const status = pick(statuses, 33, id);
  const isSent = status === "shipped" || status === "returned";
  const placed = later(day(32, id), chance(36, id) % 1440);
  return {
    id,
    customer_id: buyer.id,
    day: placed.slice(0, 10),
    placed,
    due: later(placed, 5 * 1440),
    shipped: isSent ? later(placed, 240 + (chance(37, id) % 12_000)) : null,
    status,
    country: buyer.country,
    coupon: chance(34, id) % 10 === 0 ? coupon(1 + (chance(35, id) % 20)).code : null,
    total_cents: lines.reduce((sum, { cents }) => sum + cents, 0),
  };
}

function review(id: number, { products, customers }: Sizes) {
  return {
    id,
    product_id: 1 + (chance(61, id) % products),
    customer_id: 1 + (chance(62, id) % customers),
    stars: pick(stars, 63, id),
    text: pick(remarks, 64, id),
    day: day(65, id),
  };
}

function numbered<Row>(count: number, row: (number: number) => Row): Row[] {
  return Array.from({ length: count }, (_, index) => row(index + 1));
}

/** The rows of a shop, by table. Those that have an id are in its order, from 1. */
export class Shop {
  readonly customers;
  readonly products;
  readonly orders;
  readonly order_lines;
  readonly reviews;
  readonly stock;
  readonly coupons = numbered(20, coupon);
  readonly carts = numbered(10, (id) => ({
    id,
    customer_id: id,
    product_id: 1 + (id % 9),
    quantity: 1 + (id % 3),
  }));
  readonly returns = numbered(5, (id) => ({ id, order_id: id, reason: "Came broken" }));
  readonly return_lines = numbered(5, (id) => ({ return_id: id, line: 1, quantity: 1 }));

  constructor(sizes: Sizes) {
    this.customers = numbered(sizes.customers, customer);
    this.products = numbered(sizes.products, product);
    const lines = numbered(sizes.orders, (id) => linesOf(id, sizes));
    this.order_lines = lines.flat();
    this.orders = lines.map((own, index) => order(index + 1, sizes, own));
    this.reviews = numbered(sizes.reviews, (id) => review(id, sizes));
    this.stock = numbered(sizes.products, stockOf);
  }
}

/** The row with an id. */
export function byId<Row>(rows: readonly Row[], id: number | null): Row {
  const row = rows[(id ?? 0) - 1];
  if (row === undefined) throw new Error(`There is no row ${id}`);
  return row;
}
