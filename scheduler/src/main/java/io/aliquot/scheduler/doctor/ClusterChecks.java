package io.aliquot.scheduler.doctor;

import io.aliquot.api.foreign.ForeignResources;
import io.aliquot.api.names.Labels;
import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.APIServiceCondition;
import io.fabric8.kubernetes.api.model.Event;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhook;
import io.fabric8.kubernetes.api.model.apps.Deployment;
import java.io.ByteArrayInputStream;
import java.math.BigDecimal;
import java.security.GeneralSecurityException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** What can be wrong with the cluster as a whole: its version, Aliquot's control plane, and who else claims its names. */
final class ClusterChecks {
    private static final String MWC = "MutatingWebhookConfiguration";
    private static final int LEAST_MINOR = 31;
    private static final Pattern VERSION = Pattern.compile("v?(\\d+)\\.(\\d+)\\..*");
    /** HAMi's webhook (github.com/Project-HAMi/HAMi, charts/hami/templates/scheduler/webhook.yaml). */
    private static final String HAMI_WEBHOOK = "vgpu.hami.io";
    /** In the conditions of Aliquot's webhook unless the chart's sharedNames is true (templates/_helpers.tpl, aliquot.cel.own). */
    private static final String CLAIMS_SHARED_NAMES = "'" + Resources.VGPU + "', '" + Resources.MEMORY + "'";
    /** Kubelet: kuberuntime_sandbox.go and the container runtime's message in it. */
    private static final Pattern RUNTIME_FAILURE =
            Pattern.compile("no runtime for|runtime handler|RuntimeHandler|CDI|nvidia", Pattern.CASE_INSENSITIVE);

    private ClusterChecks() {}

    static List<Finding> all(ClusterState state, Instant now) {
        return Stream.of(
                        version(state),
                        schedulerVersion(state),
                        agentVersions(state),
                        deployments(state),
                        rights(state),
                        webhooks(state, now),
                        otherWebhooks(state),
                        apiService(state),
                        runtimeClass(state),
                        ignoredNamespaces(state),
                        starting(state))
                .flatMap(List::stream)
                .toList();
    }

    static List<Finding> version(ClusterState state) {
        Matcher version = VERSION.matcher(state.kubernetesVersion());
        boolean supported = version.matches()
                && Integer.parseInt(version.group(1)) == 1
                && Integer.parseInt(version.group(2)) >= LEAST_MINOR;
        return supported
                ? List.of()
                : List.of(new Finding(
                        "kubernetes-version",
                        "cluster",
                        "runs Kubernetes " + state.kubernetesVersion() + ", and Aliquot needs 1." + LEAST_MINOR
                                + " or later",
                        "upgrade the cluster, see docs/support-matrix.md"));
    }

    /** kube-scheduler must not be newer than the API server, and at most one minor version older (Version Skew Policy). */
    private static List<Finding> schedulerVersion(ClusterState state) {
        Matcher cluster = VERSION.matcher(state.kubernetesVersion());
        return state.deployment(ClusterState.SCHEDULER).stream()
                .flatMap(deployment -> deployment.getSpec().getTemplate().getSpec().getContainers().stream())
                .filter(container -> container.getName().equals("kube-scheduler"))
                .flatMap(container -> {
                    String tag = container.getImage().replaceFirst("@.*", "").replaceFirst(".*:", "");
                    Matcher scheduler = VERSION.matcher(tag);
                    if (!scheduler.matches() || !cluster.matches()) {
                        return Stream.empty();
                    }
                    int older = Integer.parseInt(cluster.group(2)) - Integer.parseInt(scheduler.group(2));
                    return older == 0 || older == 1
                            ? Stream.empty()
                            : Stream.of(
                                    new Finding(
                                            "kube-scheduler-version",
                                            "deployment/" + state.namespace() + "/" + ClusterState.SCHEDULER,
                                            "its kube-scheduler is " + tag + " and the API server "
                                                    + state.kubernetesVersion()
                                                    + ", which Kubernetes does not support together",
                                            "run helm upgrade, which takes the cluster's version, or set kubeScheduler.image.tag"));
                })
                .toList();
    }

    static List<Finding> agentVersions(ClusterState state) {
        Set<String> schedulers = versions(state.podsOf("scheduler").stream());
        Set<String> nodes = state.podsOf("device-plugin").stream()
                .filter(pod -> !schedulers.containsAll(versions(Stream.of(pod))))
                .map(pod -> String.valueOf(pod.getSpec().getNodeName()))
                .collect(Collectors.toCollection(TreeSet::new));
        if (schedulers.isEmpty() || (nodes.isEmpty() && schedulers.size() == 1)) {
            return List.of();
        }
        Set<String> agents = versions(state.podsOf("device-plugin").stream());
        return List.of(new Finding(
                "versions",
                "daemonset/" + state.namespace() + "/" + ClusterState.AGENT,
                "the schedulers are of version " + String.join(" and ", schedulers) + " and the node agents of "
                        + String.join(" and ", agents) + " (" + some(List.copyOf(nodes)) + ")",
                "finish the upgrade: kubectl -n " + state.namespace() + " rollout status daemonset/"
                        + ClusterState.AGENT));
    }

    private static Set<String> versions(Stream<Pod> pods) {
        return pods.map(pod -> pod.getMetadata().getLabels().getOrDefault("app.kubernetes.io/version", "unknown"))
                .collect(Collectors.toCollection(TreeSet::new));
    }

    static List<Finding> deployments(ClusterState state) {
        var findings = new ArrayList<Finding>();
        if (state.deployment(ClusterState.SCHEDULER).isEmpty()) {
            findings.add(new Finding(
                    "installation",
                    "deployment/" + ClusterState.SCHEDULER,
                    "is in no namespace, so Aliquot is not installed",
                    "install the chart, see docs/install.md"));
        }
        for (Deployment deployment : state.deployments()) {
            int wanted = Objects.requireNonNullElse(deployment.getSpec().getReplicas(), 1);
            int available = Objects.requireNonNullElse(deployment.getStatus().getAvailableReplicas(), 0);
            if (available >= wanted && wanted > 0) {
                continue;
            }
            String name = deployment.getMetadata().getName();
            String component = deployment.getMetadata().getLabels().getOrDefault(ClusterState.COMPONENT, "");
            String pods = state.podsOf(component).stream()
                    .filter(pod -> !PodTrouble.isReady(pod) && !PodTrouble.hasEnded(pod))
                    .findFirst()
                    .map(pod ->
                            "; its pod " + pod.getMetadata().getName() + " is not ready" + PodTrouble.text(pod, state))
                    .orElse("");
            findings.add(new Finding(
                    "deployment",
                    "deployment/" + state.namespace() + "/" + name,
                    available + " of " + wanted + " replicas are available" + pods,
                    wanted == 0
                            ? "scale it up: kubectl -n " + state.namespace() + " scale deployment/" + name
                                    + " --replicas=2"
                            : "see kubectl -n " + state.namespace() + " describe pods -l " + ClusterState.COMPONENT
                                    + "=" + component));
        }
        return findings;
    }

    /** One finding for each account that lacks rights. */
    static List<Finding> rights(ClusterState state) {
        var byAccount = state.refused().stream()
                .collect(Collectors.groupingBy(Right::account, TreeMap::new, Collectors.toList()));
        return byAccount.entrySet().stream()
                .map(entry -> {
                    Map<String, String> verbs = entry.getValue().stream()
                            .collect(Collectors.toMap(
                                    Right::target, Right::verb, (one, other) -> one + "/" + other, LinkedHashMap::new));
                    return new Finding(
                            "rights",
                            "serviceaccount/" + state.namespace() + "/" + entry.getKey(),
                            "may not "
                                    + some(verbs.entrySet().stream()
                                            .map(target -> target.getValue() + " " + target.getKey())
                                            .toList())
                                    + ", which the chart allows it",
                            "run helm upgrade with the chart of this release, which writes its roles and bindings again, and"
                                    + " see what has changed them: kubectl get"
                                    + " clusterroles,clusterrolebindings,roles,rolebindings -A -l "
                                    + ClusterState.COMPONENT + "="
                                    + entry.getKey().replaceFirst("aliquot-", ""));
                })
                .toList();
    }

    static List<Finding> webhooks(ClusterState state, Instant now) {
        if (state.deployment(ClusterState.SCHEDULER).isEmpty()) {
            return List.of();
        }
        List<MutatingWebhook> ours = state.webhooks().stream()
                .filter(one -> one.getMetadata().getName().equals("aliquot"))
                .flatMap(one -> one.getWebhooks().stream())
                .toList();
        if (ours.isEmpty()) {
            return List.of(new Finding(
                    "webhook",
                    MWC + "/aliquot",
                    "is missing, so pods that request shares are not translated",
                    "run helm upgrade with the chart of this release"));
        }
        var findings = new ArrayList<>(endpoints(state, ClusterState.WEBHOOK, "pods that request shares are refused"));
        ours.stream()
                .collect(Collectors.groupingBy(webhook ->
                        Objects.requireNonNullElse(webhook.getClientConfig().getCaBundle(), "")))
                .forEach((bundle, webhooks) -> {
                    String names = some(webhooks.stream()
                            .map(MutatingWebhook::getName)
                            .sorted()
                            .toList());
                    bundleProblem(bundle, state, now)
                            .map(problem -> new Finding(
                                    "webhook-certificate",
                                    MWC + "/aliquot",
                                    "the caBundle of " + names + " " + problem
                                            + ", so the API server refuses pods that request shares",
                                    "let the chart's Job write it again: kubectl -n " + state.namespace()
                                            + " delete jobs -l " + ClusterState.COMPONENT
                                            + "=ca-bundles, then helm upgrade"))
                            .ifPresent(findings::add);
                });
        for (Pod pod : state.podsOf("scheduler")) {
            Optional.ofNullable(state.serving().get(pod.getMetadata().getUid()))
                    .filter(certificate -> certificate.getNotAfter().toInstant().isBefore(now))
                    .map(certificate -> new Finding(
                            "webhook-certificate",
                            "pod/" + state.namespace() + "/" + pod.getMetadata().getName(),
                            "serves a certificate that has expired at "
                                    + certificate.getNotAfter().toInstant(),
                            "see why it does not renew it: kubectl -n " + state.namespace() + " logs "
                                    + pod.getMetadata().getName() + " -c extender"))
                    .ifPresent(findings::add);
        }
        return findings;
    }

    /** What is wrong with a caBundle, the part of a sentence after it. */
    private static Optional<String> bundleProblem(String bundle, ClusterState state, Instant now) {
        if (bundle.isEmpty()) {
            return Optional.of("is empty");
        }
        List<X509Certificate> authorities;
        try {
            authorities = certificates(bundle);
        } catch (GeneralSecurityException | IllegalArgumentException e) {
            return Optional.of("is not readable");
        }
        Optional<Instant> latest = authorities.stream()
                .map(authority -> authority.getNotAfter().toInstant())
                .max(Comparator.naturalOrder());
        if (latest.isEmpty() || latest.get().isBefore(now)) {
            return Optional.of(latest.map(expiry -> "has expired at " + expiry).orElse("has no certificate"));
        }
        return state.podsOf("scheduler").stream()
                        .flatMap(pod -> Stream.ofNullable(
                                state.serving().get(pod.getMetadata().getUid())))
                        .anyMatch(served -> authorities.stream().noneMatch(authority -> issued(authority, served)))
                ? Optional.of("does not contain the authority of the certificate that the schedulers serve")
                : Optional.empty();
    }

    private static List<X509Certificate> certificates(String bundle) throws GeneralSecurityException {
        byte[] pem = Base64.getDecoder().decode(bundle);
        return CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(pem)).stream()
                .map(X509Certificate.class::cast)
                .toList();
    }

    private static boolean issued(X509Certificate authority, X509Certificate served) {
        try {
            served.verify(authority.getPublicKey());
            return true;
        } catch (GeneralSecurityException e) {
            return authority.equals(served);
        }
    }

    /** A Service that is there has a ready endpoint. */
    private static List<Finding> endpoints(ClusterState state, String service, String consequence) {
        boolean ready = state.endpoints().stream()
                .filter(slice -> service.equals(slice.getMetadata().getLabels().get("kubernetes.io/service-name")))
                .flatMap(slice -> Stream.ofNullable(slice.getEndpoints()).flatMap(List::stream))
                .anyMatch(endpoint ->
                        !Boolean.FALSE.equals(endpoint.getConditions().getReady()));
        return ready
                ? List.of()
                : List.of(new Finding(
                        "endpoints",
                        "service/" + state.namespace() + "/" + service,
                        "has no ready endpoint, so " + consequence,
                        "see kubectl -n " + state.namespace() + " get pods -o wide"));
    }

    static List<Finding> otherWebhooks(ClusterState state) {
        boolean claimsSharedNames = state.webhooks().stream()
                .filter(one -> one.getMetadata().getName().equals("aliquot"))
                .flatMap(one -> one.getWebhooks().stream())
                .flatMap(webhook -> webhook.getMatchConditions().stream())
                .anyMatch(condition -> condition.getExpression().contains(CLAIMS_SHARED_NAMES));
        return state.webhooks().stream()
                .filter(one -> claimsSharedNames)
                .filter(one -> one.getWebhooks().stream().anyMatch(webhook -> HAMI_WEBHOOK.equals(webhook.getName())))
                .map(one -> new Finding(
                        "other-webhook",
                        MWC + "/" + one.getMetadata().getName(),
                        "is HAMi's, and both HAMi and Aliquot take every pod that requests " + Resources.MEMORY,
                        "set the chart's sharedNames=true, see docs/compatibility.md, or remove HAMi"))
                .toList();
    }

    static List<Finding> apiService(ClusterState state) {
        if (!state.hasApi()) {
            return List.of();
        }
        if (state.apiService().isEmpty()) {
            return List.of(new Finding(
                    "api-service",
                    "apiservice/" + ClusterState.API_SERVICE,
                    "is missing, so kubectl get gpunodes and the web page do not work",
                    "run helm upgrade with the chart of this release, or set api.enabled=false"));
        }
        Optional<APIServiceCondition> unavailable = Stream.ofNullable(
                        state.apiService().get().getStatus())
                .flatMap(status -> status.getConditions().stream())
                .filter(condition -> condition.getType().equals("Available")
                        && !condition.getStatus().equals("True"))
                .findFirst();
        String consequence = "no namespace can be deleted, and kubectl get gpunodes fails";
        return unavailable
                .map(condition -> List.of(new Finding(
                        "api-service",
                        "apiservice/" + ClusterState.API_SERVICE,
                        "is not available (" + condition.getReason() + ": " + condition.getMessage() + "), so "
                                + consequence,
                        "see kubectl -n " + state.namespace() + " get pods -l " + ClusterState.COMPONENT + "=api")))
                .orElseGet(() -> endpoints(state, ClusterState.EXTENSION_API, consequence));
    }

    static List<Finding> runtimeClass(ClusterState state) {
        return state.runtimeClassName().stream()
                .filter(name -> state.runtimeClass(name).isEmpty())
                .map(name -> new Finding(
                        "runtime-class",
                        "runtimeclass/" + name,
                        "is missing, so no node agent and no pod with a share is created",
                        "create it with the handler of NVIDIA's runtime, by helm upgrade with runtimeClass.create=true,"
                                + " or set runtimeClass.name to another one"))
                .toList();
    }

    static List<Finding> ignoredNamespaces(ClusterState state) {
        return state.ignored().stream()
                .flatMap(pod -> requested(pod).stream()
                        .map(resource -> new Finding(
                                "ignored-namespace",
                                "pod/" + pod.getMetadata().getNamespace() + "/"
                                        + pod.getMetadata().getName(),
                                "is Pending and requests " + resource + " in a namespace with the label "
                                        + Labels.WEBHOOK + "=" + Labels.WEBHOOK_IGNORE
                                        + ", where Aliquot's webhook does not translate it",
                                "remove the label, kubectl label namespace "
                                        + pod.getMetadata().getNamespace() + " " + Labels.WEBHOOK
                                        + "-, and create the pod again")))
                .toList();
    }

    /**
     * A resource that a container requests and that nothing serves without Aliquot's webhook. NVIDIA's device plugin serves
     * {@code nvidia.com/gpu}, unless the pod says that it is Aliquot's.
     */
    private static Optional<String> requested(Pod pod) {
        Map<String, String> labels =
                Objects.requireNonNullElse(pod.getMetadata().getLabels(), Map.of());
        boolean ours = Labels.OURS_ON.equals(labels.get(Labels.OURS))
                || ClusterState.SCHEDULER.equals(pod.getSpec().getSchedulerName());
        return Stream.of(pod.getSpec().getContainers(), pod.getSpec().getInitContainers())
                .flatMap(List::stream)
                .flatMap(container -> Stream.ofNullable(container.getResources()))
                .flatMap(resources -> resources.getLimits().entrySet().stream())
                .filter(limit -> isPositive(limit.getValue()))
                .map(Map.Entry::getKey)
                .filter(resource -> Resources.SUPPORTED.contains(resource)
                        || resource.startsWith(Resources.INSTANCE_GROUP)
                        || ForeignResources.usesAckResources(Map.of(resource, ""))
                        || (ours && ForeignResources.NAMES.contains(resource)))
                .sorted()
                .findFirst();
    }

    static boolean isPositive(Quantity quantity) {
        return quantity.getNumericalAmount().compareTo(BigDecimal.ZERO) > 0;
    }

    /** Pods with shares whose sandbox or container the node's runtime cannot create. */
    static List<Finding> starting(ClusterState state) {
        return state.starting().stream()
                .flatMap(pod -> state.warnings().getOrDefault(pod.getMetadata().getUid(), List.of()).reversed().stream()
                        // Which says nothing but the pod's name.
                        .filter(event -> !"BackOff".equals(event.getReason()))
                        .filter(event -> !quotesCommand(event.getMessage()))
                        .filter(event -> RUNTIME_FAILURE
                                .matcher(String.valueOf(event.getMessage()))
                                .find())
                        .limit(1)
                        .map(event -> notStarting(pod, event)))
                .toList();
    }

    /**
     * Whether a message of the kubelet's quotes a container's command, as that of a program which the image lacks does ({@code
     * exec: "tool --token=…": executable file not found in $PATH}): no fault of the node's, and others may read it.
     */
    static boolean quotesCommand(String message) {
        return String.valueOf(message).contains("exec: ");
    }

    private static Finding notStarting(Pod pod, Event event) {
        return new Finding(
                "pod-start",
                "pod/" + pod.getMetadata().getNamespace() + "/"
                        + pod.getMetadata().getName(),
                "does not start on node " + pod.getSpec().getNodeName() + ": " + event.getMessage(),
                "configure NVIDIA's runtime in the node's containerd or CRI-O under the handler of the pod's RuntimeClass "
                        + pod.getSpec().getRuntimeClassName() + ", and its CDI specification where it is in CDI mode");
    }

    /** At most three names. */
    static String some(List<String> names) {
        return names.stream().limit(3).collect(Collectors.joining(", ")) + (names.size() > 3 ? ", …" : "");
    }
}
