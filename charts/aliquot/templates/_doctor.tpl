{{/*
A CronJob of the doctor: suffix is empty, or -bundle for the one that writes the archive of --bundle, which kubectl exec takes
out of the pod. Call with (dict "suffix" SUFFIX "root" $).
*/}}
{{- define "aliquot.doctorCronJob" -}}
# Never runs by itself: it is the template of kubectl create job --from=cronjob/aliquot-doctor{{ .suffix }}.
apiVersion: batch/v1
kind: CronJob
metadata:
  name: aliquot-doctor{{ .suffix }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "aliquot.labels" .root | nindent 4 }}
    app.kubernetes.io/component: doctor
spec:
  suspend: true
  schedule: "0 0 1 1 *"
  # Resumed, it does not make up for the dates that it has missed.
  startingDeadlineSeconds: 60
  jobTemplate:
    spec:
      # A second run would find the same.
      backoffLimit: 0
      ttlSecondsAfterFinished: 86400
      template:
        metadata:
          labels: {{- include "aliquot.podLabels" (dict "component" "doctor" "root" .root) | nindent 12 }}
        spec:
          serviceAccountName: aliquot-doctor
          automountServiceAccountToken: false
          restartPolicy: Never
          {{- /* Without the scheduler's priority: it evicts no other pod. */}}
          {{- include "aliquot.podPlacement" (dict "values" (omit .root.Values.scheduler "priorityClassName") "root" .root) | trim | nindent 10 }}
          enableServiceLinks: false
          securityContext: {{- include "aliquot.nonRoot" .root | nindent 12 }}
          {{- if .suffix }}
          terminationGracePeriodSeconds: 1
          containers:
          # The pod is ready once the archive is written, and leaves time to take it.
          - name: archive
            image: {{ include "aliquot.image" (dict "image" .root.Values.scheduler.image "root" .root) | quote }}
            imagePullPolicy: {{ .root.Values.imagePullPolicy }}
            command: [sleep, "900"]
            env:
            - {name: NVIDIA_VISIBLE_DEVICES, value: void}
            resources: {{- include "aliquot.resources" (dict "resources" (dict "requests" (dict "cpu" "1m" "memory" "8Mi") "limits" (dict "memory" "32Mi")) "root" .root) | indent 14 }}
            securityContext:
              allowPrivilegeEscalation: false
              readOnlyRootFilesystem: true
              capabilities: {drop: [ALL]}
            volumeMounts:
            - {name: bundle, mountPath: /bundle, readOnly: true}
          initContainers:
          {{- else }}
          containers:
          {{- end }}
          - name: doctor
            image: {{ include "aliquot.image" (dict "image" .root.Values.scheduler.image "root" .root) | quote }}
            imagePullPolicy: {{ .root.Values.imagePullPolicy }}
            args: [doctor{{ if .suffix }}, --bundle, /bundle/aliquot.tar.gz{{ end }}]
            env:
            - {name: NVIDIA_VISIBLE_DEVICES, value: void}
            resources: {{- include "aliquot.sizedResources" (dict "resources" (dict "requests" (dict "cpu" "50m")) "first" 256 "further" 20 "requested" 66 "root" .root) | indent 14 }}
            securityContext:
              allowPrivilegeEscalation: false
              readOnlyRootFilesystem: true
              capabilities: {drop: [ALL]}
            volumeMounts:
            - {name: account, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
            {{- if .suffix }}
            - {name: bundle, mountPath: /bundle}
            {{- end }}
          volumes:
          {{- if .suffix }}
          - {name: bundle, emptyDir: {sizeLimit: 128Mi}}
          {{- end }}
          - name: account
            projected:
              sources:
              # Kubernetes extends the usual token to a year.
              - serviceAccountToken: {path: token, expirationSeconds: 600}
              - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
{{- end }}
