//! Where to draw what: nodes in layers from the top down, few crossings, ways that bend around nodes.

use super::Way;

/// The width of every node, the height of one, and the room between them.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) height: f64,
    pub(super) between: f64,
    pub(super) layer: f64,
}

/// Where everything is.
pub(super) struct Layout {
    pub(super) width: f64,
    pub(super) height: f64,
    /// The middle of each node.
    pub(super) nodes: Vec<(f64, f64)>,
    /// The points each way goes through, from one node's border to the other's.
    pub(super) ways: Vec<Vec<(f64, f64)>>,
}

/// A way that leads over a layer holds a place in it, as if by a thin node.
const BEND_WIDTH: f64 = 24.0;
const SWEEPS: usize = 12;

struct Vertex {
    layer: usize,
    width: f64,
    x: f64,
    above: Vec<usize>,
    below: Vec<usize>,
}

pub(super) fn layout(widths: &[f64], ways: &[Way], room: Room) -> Layout {
    let turned = turned(widths.len(), ways);
    let layers = layers(widths.len(), ways, &turned);
    let mut vertices: Vec<Vertex> = widths
        .iter()
        .zip(&layers)
        .map(|(&width, &layer)| Vertex { layer, width, x: 0.0, above: Vec::new(), below: Vec::new() })
        .collect();
    let chains: Vec<Vec<usize>> =
        ways.iter().zip(&turned).map(|(way, &turned)| chain(&mut vertices, way, turned)).collect();
    let mut order = in_layers(&vertices);
    sort(&mut vertices, &mut order);
    place(&mut vertices, &order, room.between);

    let left = vertices.iter().map(|v| v.x - v.width / 2.0).fold(f64::INFINITY, f64::min);
    let right = vertices.iter().map(|v| v.x + v.width / 2.0).fold(0.0, f64::max);
    let top = |layer: usize| layer as f64 * (room.height + room.layer);
    let middle = |v: &Vertex| (v.x - left, top(v.layer) + room.height / 2.0);
    let height = order.len().checked_sub(1).map_or(0.0, top) + room.height;
    let nodes: Vec<_> = vertices[..widths.len()].iter().map(middle).collect();
    let path = |(way, chain): (&Way, &Vec<usize>)| {
        let mut points: Vec<(f64, f64)> = chain.iter().map(|&at| middle(&vertices[at])).collect();
        let down = layers[way.from] < layers[way.to];
        let half = if down { room.height / 2.0 } else { -room.height / 2.0 };
        let pair = ways.iter().any(|other| (other.from, other.to) == (way.to, way.from));
        let aside = if pair && way.from != way.to { half } else { 0.0 };
        if let [first, .., last] = &mut points[..] {
            *first = (first.0 - aside, first.1 + half);
            *last = (last.0 - aside, last.1 - half);
        }
        points
    };
    let paths = ways.iter().zip(&chains).map(path).collect();
    Layout { width: (right - left).max(0.0), height, nodes, ways: paths }
}

/// Which ways lead back, found by walking from the first node on: they are laid out as if they led down.
fn turned(nodes: usize, ways: &[Way]) -> Vec<bool> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        Not,
        OnTheWay,
        Left,
    }
    let mut turned = vec![false; ways.len()];
    let mut seen = vec![Seen::Not; nodes];
    for start in 0..nodes {
        if seen[start] != Seen::Not {
            continue;
        }
        seen[start] = Seen::OnTheWay;
        let mut walk = vec![(start, 0)];
        while let Some((node, from)) = walk.pop() {
            match ways[from..].iter().position(|way| way.from == node) {
                None => seen[node] = Seen::Left,
                Some(found) => {
                    let way = from + found;
                    walk.push((node, way + 1));
                    let to = ways[way].to;
                    match seen[to] {
                        Seen::Not => {
                            seen[to] = Seen::OnTheWay;
                            walk.push((to, 0));
                        }
                        Seen::OnTheWay => turned[way] = true,
                        Seen::Left => {}
                    }
                }
            }
        }
    }
    turned
}

/// Each node one below the lowest that leads to it.
fn layers(nodes: usize, ways: &[Way], turned: &[bool]) -> Vec<usize> {
    let mut layers = vec![0; nodes];
    for _ in 0..nodes {
        let mut moved = false;
        for (way, turned) in ways.iter().zip(turned).filter(|(way, _)| way.from != way.to) {
            let (above, below) = if *turned { (way.to, way.from) } else { (way.from, way.to) };
            if layers[below] <= layers[above] {
                layers[below] = layers[above] + 1;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    layers
}

/// The vertices of a way, with one for each layer that it leads over.
fn chain(vertices: &mut Vec<Vertex>, way: &Way, turned: bool) -> Vec<usize> {
    if way.from == way.to {
        return vec![way.from];
    }
    let (above, below) = if turned { (way.to, way.from) } else { (way.from, way.to) };
    let mut chain = vec![above];
    for layer in vertices[above].layer + 1..vertices[below].layer {
        vertices.push(Vertex { layer, width: BEND_WIDTH, x: 0.0, above: Vec::new(), below: Vec::new() });
        chain.push(vertices.len() - 1);
    }
    chain.push(below);
    for pair in chain.windows(2) {
        vertices[pair[0]].below.push(pair[1]);
        vertices[pair[1]].above.push(pair[0]);
    }
    if turned {
        chain.reverse();
    }
    chain
}

fn in_layers(vertices: &[Vertex]) -> Vec<Vec<usize>> {
    let mut order: Vec<Vec<usize>> = Vec::new();
    for (index, vertex) in vertices.iter().enumerate() {
        order.resize_with(order.len().max(vertex.layer + 1), Vec::new);
        order[vertex.layer].push(index);
    }
    order
}

/// Puts each vertex where its neighbours are on average, so that ways cross little.
fn sort(vertices: &mut [Vertex], order: &mut [Vec<usize>]) {
    let count = order.len();
    for layer in order.iter() {
        layer.iter().enumerate().for_each(|(place, &vertex)| vertices[vertex].x = place as f64);
    }
    for sweep in 0..SWEEPS {
        for step in 0..count {
            let down = sweep % 2 == 0;
            let layer = &mut order[if down { step } else { count - 1 - step }];
            let wish = |&vertex: &usize| wish(vertices, vertex, down);
            let mut wishes: Vec<_> = layer.iter().map(|vertex| (wish(vertex), *vertex)).collect();
            wishes.sort_by(|a, b| a.0.total_cmp(&b.0));
            for (place, (_, vertex)) in wishes.into_iter().enumerate() {
                layer[place] = vertex;
                vertices[vertex].x = place as f64;
            }
        }
    }
}

fn wish(vertices: &[Vertex], vertex: usize, from_above: bool) -> f64 {
    let neighbours = if from_above { &vertices[vertex].above } else { &vertices[vertex].below };
    match neighbours.len() {
        0 => vertices[vertex].x,
        many => neighbours.iter().map(|&n| vertices[n].x).sum::<f64>() / many as f64,
    }
}

/// Gives each vertex an x near its neighbours', without touching those beside it.
fn place(vertices: &mut [Vertex], order: &[Vec<usize>], between: f64) {
    for layer in order {
        let mut x = 0.0;
        for &vertex in layer {
            let width = vertices[vertex].width;
            vertices[vertex].x = x + width / 2.0;
            x += width + between;
        }
    }
    for sweep in 0..SWEEPS {
        let down = sweep % 2 == 1;
        for step in 0..order.len() {
            let layer = &order[if down { step } else { order.len() - 1 - step }];
            settle(vertices, layer, between, down);
        }
    }
}

/// The places nearest to what a layer's vertices wish for that keep their order and distances: where two wishes
/// collide, both get their mean.
fn settle(vertices: &mut [Vertex], layer: &[usize], between: f64, from_above: bool) {
    let mut offset = 0.0;
    let mut last_half = 0.0;
    let mut offsets = Vec::new();
    // Runs of vertices that stand side by side: the sum of their wishes, and how many they are.
    let mut runs: Vec<(f64, usize)> = Vec::new();
    for (place, &vertex) in layer.iter().enumerate() {
        let half = vertices[vertex].width / 2.0;
        offset += if place == 0 { 0.0 } else { last_half + between + half };
        last_half = half;
        offsets.push(offset);
        runs.push((wish(vertices, vertex, from_above) - offset, 1));
        while let [.., (a, m), (b, n)] = runs[..]
            && a / m as f64 > b / n as f64
        {
            runs.truncate(runs.len() - 2);
            runs.push((a + b, m + n));
        }
    }
    let mut places = layer.iter().zip(offsets);
    for (sum, count) in runs {
        for (&vertex, offset) in places.by_ref().take(count) {
            vertices[vertex].x = sum / count as f64 + offset;
        }
    }
}
